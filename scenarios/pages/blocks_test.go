package pages

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A block is a fenced block of a page.
type block struct {
	page  string // path below the repository
	line  int    // of its first line
	lang  string
	words []string // of the info string, behind the language
	norun string   // reason; empty if the block is run
	text  string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// has reports whether the info string has a word.
func (b block) has(word string) bool { return slices.Contains(b.words, word) }

// value returns the value of NAME=VALUE in the info string.
func (b block) value(name string) string {
	for _, word := range b.words {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}

	return ""
}

// isShell reports whether the block has commands.
func (b block) isShell() bool {
	return b.value("file") == "" && slices.Contains([]string{"sh", "bash", "shell", "console"}, b.lang)
}

// otherProgram matches a command that not every machine has. What else the blocks use is
// in every POSIX system, or built for the run.
var otherProgram = regexp.MustCompile(`(?m)(?:^|[\s(|;&])(python3|node|curl|openssl) `)

// missing returns a program that the block needs and this machine lacks, or nothing.
func (b block) missing() string {
	needs := []string{b.value("needs")}
	for _, found := range otherProgram.FindAllStringSubmatch(b.text, -1) {
		needs = append(needs, found[1])
	}

	for _, program := range needs {
		if _, err := exec.LookPath(program); program != "" && err != nil {
			return program
		}
	}

	return ""
}

// commands returns the commands of a shell block: all of its text, or the lines of a
// console behind a prompt.
func (b block) commands() string {
	if b.lang != "console" {
		return b.text
	}

	var commands strings.Builder
	for line := range strings.Lines(b.text) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			commands.WriteString(command)
		}
	}

	return commands.String()
}

// blocksOf returns the fenced blocks of a page.
func blocksOf(page, text string) (blocks []block, err error) {
	var open *block

	fence := ""
	number := 0

	for line := range strings.Lines(text) {
		number++

		trimmed := strings.TrimSpace(line)
		switch {
		case open == nil && strings.HasPrefix(trimmed, "```"):
			info := strings.TrimLeft(trimmed, "`")
			fence = strings.TrimSuffix(trimmed, info)

			open = &block{page: page, line: number + 1}
			info, open.norun, _ = strings.Cut(info, "norun=")
			words := append(strings.Fields(info), "")
			open.lang = words[0]
			open.words = words[1:]
		case open != nil && trimmed == fence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += line
		}
	}

	if open != nil {
		return nil, fmt.Errorf("%s: the block has no end", open)
	}

	return blocks, nil
}

// pages returns the blocks of README.md and of every page in docs, by page.
func pages(t *testing.T) map[string][]block {
	t.Helper()

	root := os.DirFS(filepath.Join("..", ".."))
	names := []string{"README.md"}

	err := fs.WalkDir(root, "docs", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".md" {
			names = append(names, name)
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	all := map[string][]block{}
	for _, name := range names {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			t.Fatal(err)
		}

		all[name], err = blocksOf(name, string(text))
		if err != nil {
			t.Fatal(err)
		}
	}

	return all
}

// mostNotRun bounds the shell blocks that aren't run.
const mostNotRun = 8

// Few shell blocks aren't run, each for a reason.
//
// Requirement: OPS-035
func TestFewBlocksAreNotRun(t *testing.T) {
	count := 0
	for _, blocks := range pages(t) {
		for _, b := range blocks {
			if !b.isShell() || b.norun == "" {
				continue
			}

			count++
			t.Logf("%s isn't run: %s", b, b.norun)

			if len(strings.Fields(b.norun)) < 2 {
				t.Errorf("%s: norun=%s gives no reason", b, b.norun)
			}
		}
	}

	if count > mostNotRun {
		t.Errorf("%d shell blocks aren't run, at most %d", count, mostNotRun)
	}
}

// Blocks are found with their words, whatever fences and languages stand around them.
func TestBlocks(t *testing.T) {
	text := "a\n```sh eventually exits=3\nroster get x\n```\n- b\n\n  ````yaml file=a.yaml\n  ```\n  ````\n" +
		"```bash norun=needs a SPIRE server\nx\n```\n```console\n$ a\nanswer\n$ b\n```\n"

	blocks, err := blocksOf("p.md", text)
	if err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, b := range blocks {
		got = append(got, fmt.Sprintf("%s %s %t %t %q %q %q %q", b, b.lang, b.isShell(), b.has("eventually"),
			b.value("exits"), b.value("file"), b.norun, b.commands()))
	}

	want := []string{
		`p.md:3 sh true true "3" "" "" "roster get x\n"`,
		`p.md:8 yaml false false "" "a.yaml" "" "  ` + "```" + `\n"`,
		`p.md:11 bash true false "" "" "needs a SPIRE server" "x\n"`,
		`p.md:14 console true false "" "" "" "a\nb\n"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	if _, err := blocksOf("p.md", "```sh\nx\n"); err == nil {
		t.Error("a block without an end is taken")
	}
}
