package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// eachCommand calls check for every command of the program.
func eachCommand(check func(*cobra.Command)) {
	w := &world{env: map[string]string{}}

	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		check(c)

		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(w.program(io.Discard, io.Discard).root())
}

// riddles are words in place of a noun of the field (docs/glossary.md has the nouns).
var riddles = regexp.MustCompile(`(?i)\b(told|heard|whoever|nobody|somebody|what it|had anew|none that|is none` +
	`|goes here|no longer or|for good|yet to|anew|whatever|trying on|beside it|what to do)\b`)

// A help text names things by the terms of the field, begins with a verb, and fits a
// terminal.
func TestHelpTextsAreImperative(t *testing.T) {
	const widest = 100 // columns of a line of a description
	eachCommand(func(c *cobra.Command) {
		name := c.CommandPath()
		for _, text := range []string{c.Short, c.Long, c.Example, flagTexts(c)} {
			if word := riddles.FindString(text); word != "" {
				t.Errorf("%s: %q in the help: name the thing", name, word)
			}
		}

		if c.Name() == "roster" {
			return // a title
		}

		verb, _, _ := strings.Cut(c.Short, " ")
		if first, _ := utf8.DecodeRuneInString(verb); !unicode.IsUpper(first) || strings.HasSuffix(verb, "s") {
			t.Errorf("%s: the summary %q must begin with a verb", name, c.Short)
		}

		if strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: the summary %q ends with a period", name, c.Short)
		}

		for line := range strings.Lines(c.Long) {
			if n := utf8.RuneCountInString(line); n > widest && !strings.HasPrefix(line, "  ") {
				t.Errorf("%s: a line of %d columns in the help: %s", name, n, line)
			}
		}
	})
}

// flagTexts returns the texts of a command's own flags.
func flagTexts(c *cobra.Command) string { return c.LocalFlags().FlagUsages() }

// Every flag but a switch names its value, so that the help shows more than a type.
func TestFlagsNameTheirValues(t *testing.T) {
	types := []string{"string", "stringArray", "strings", "int", "uint", "uint32", "uint64", "duration"}
	shown := regexp.MustCompile(`(?m)^ +(?:-\w, )?--[\w-]+ (\w+)  `)
	eachCommand(func(c *cobra.Command) {
		for _, m := range shown.FindAllStringSubmatch(flagTexts(c), -1) {
			if slices.Contains(types, m[1]) {
				t.Errorf("%s: %s: name the value in backquotes", c.CommandPath(), strings.TrimSpace(m[0]))
			}
		}
	})
}

// The pages for users show command lines that the program accepts: each command, argument
// count aside, and each flag exists.
func TestDocumentedCommandLinesExist(t *testing.T) {
	pages := []string{"../../README.md", "../../CONTRIBUTING.md"}
	for _, folder := range []string{"docs", "docs/guides", "docs/concepts"} {
		more, err := filepath.Glob("../../" + folder + "/*.md")
		if err != nil || len(more) == 0 {
			t.Fatal(folder, err)
		}

		pages = append(pages, more...)
	}

	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		must(t, err)

		for _, line := range documentedLines(string(text)) {
			found++

			if problem := checkCommandLine(line); problem != "" {
				t.Errorf("%s: roster %s: %s", filepath.Base(page), strings.Join(line, " "), problem)
			}
		}
	}

	if found < 150 {
		t.Errorf("only %d command lines found", found)
	}
}

// shownCommand matches a command line of the program in a page.
var shownCommand = regexp.MustCompile("(?m)(?:^|`|\\| )(?:\\./roster|go run \\./cmd/roster|roster) ([a-z][^`\\n]*)")

// documentedLines returns the words behind the program's name of each command line in a
// page: in code blocks, to the comment, and between backquotes.
func documentedLines(text string) [][]string {
	var lines [][]string
	for _, m := range shownCommand.FindAllStringSubmatch(text, -1) {
		line, _, _ := strings.Cut(m[1], " #")
		line, _, _ = strings.Cut(line, " | ")
		lines = append(lines, words(line))
	}

	return lines
}

// checkCommandLine returns the first error of a command line; nothing if its command and
// flags exist.
func checkCommandLine(line []string) string {
	w := &world{env: map[string]string{}}
	root := w.program(io.Discard, io.Discard).root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()

	c, rest, err := root.Find(line)
	if err != nil {
		return err.Error()
	}

	if c == root || c.HasSubCommands() && c.Name() != "dev" && c.Name() != "completion" && len(rest) > 0 {
		return "no such command"
	}

	for _, word := range rest {
		if word == "--" {
			break
		}

		name, isFlag := strings.CutPrefix(word, "--")

		name, _, _ = strings.Cut(name, "=")
		if isFlag && c.Flag(name) == nil && c.InheritedFlags().Lookup(name) == nil {
			return "no flag --" + name
		}
	}

	return ""
}

// A suggested flag exists, and no command has a name for which another one is suggested.
func TestSuggestionsExist(t *testing.T) {
	flags, names := map[string]bool{}, map[string]bool{}

	eachCommand(func(c *cobra.Command) {
		visit := func(flag *pflag.Flag) { flags[flag.Name] = true }
		c.Flags().VisitAll(visit)
		c.InheritedFlags().VisitAll(visit)

		if !c.HasParent() || c.Parent().HasParent() {
			return
		}

		for _, name := range append(c.Aliases, c.Name()) {
			names[name] = true
		}
	})

	for foreign, meant := range foreignFlags {
		if !flags[meant] {
			t.Errorf("--%s is suggested for --%s, and no command has it", meant, foreign)
		}
	}

	for name, words := range suggested {
		for _, word := range words {
			if names[word] || !names[name] {
				t.Errorf("%s is suggested for %s", name, word)
			}
		}
	}
}
