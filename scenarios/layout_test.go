package scenarios

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mostColumns bounds a line; a tab counts as four columns.
const mostColumns = 120

// No line of a Go file is too long to be read beside another file.
func TestLinesFit(t *testing.T) {
	files := 0

	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}

		files++

		long, err := longLines(path)
		for _, line := range long {
			t.Errorf("%s has over %d columns", line, mostColumns)
		}

		return err
	})
	if err != nil || files < 500 {
		t.Fatalf("%d files were read: %v", files, err)
	}
}

// mostLiteral is the length of a string literal in a test from which on its line may be
// longer: a JSON document that is broken into pieces is harder to read.
const mostLiteral = 70

var alignment = regexp.MustCompile(` {2,}`)

// longLines returns the lines of a file that have more than mostColumns columns.
func longLines(path string) (long []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	test := strings.HasSuffix(path, "_test.go")

	literals := map[int]bool{}
	if test {
		literals = longLiterals(text)
	}

	number := 0
	for line := range strings.Lines(string(text)) {
		number++

		line = strings.TrimRight(line, "\r\n")
		if test { // gofmt aligns the values of a table behind its longest key
			line = alignment.ReplaceAllString(line, " ")
		}

		if len([]rune(line))+3*strings.Count(line, "\t") > mostColumns && !literals[number] {
			long = append(long, fmt.Sprintf("%s:%d", path, number))
		}
	}

	return long, nil
}

// longLiterals returns the lines of a Go file on which a string literal has more than
// mostLiteral columns.
func longLiterals(text []byte) map[int]bool {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	lines := map[int]bool{}

	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)

	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}

		if tok != token.STRING && (tok != token.COMMENT || !strings.HasPrefix(literal, "// {")) { // an Example's output
			continue
		}

		for i, part := range strings.Split(literal, "\n") {
			if len([]rune(part)) > mostLiteral {
				lines[fset.Position(pos).Line+i] = true
			}
		}
	}
}
