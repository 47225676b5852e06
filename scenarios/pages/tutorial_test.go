package pages

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	mostCommands   = 16
	tutorialScript = "../../cmd/roster/testdata/init.txt"
)

// The tutorial has the commands of the script that takes two domains from nothing to a
// peered pair, and no others.
//
// Requirement: OPS-025
func TestTheTutorialQuotesTheScript(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash(tutorialScript))
	if err != nil {
		t.Fatal(err)
	}

	var quoted []string
	for _, b := range pages(t)["docs/tutorial.md"] {
		if b.has("sixteen") {
			quoted = append(quoted, plainCommands(b.commands())...)
		}
	}

	until, _, found := strings.Cut(string(text), "\n# An agent of one domain is found in the other.")
	if !found {
		t.Fatal("the script has another order")
	}

	scripted := plainCommands(strings.ReplaceAll(until, "${NET}.", exampleNet))
	if !slices.Equal(quoted, scripted) {
		t.Errorf("docs/tutorial.md has\n%s\n\n%s has\n%s", strings.Join(quoted, "\n"), tutorialScript,
			strings.Join(scripted, "\n"))
	}

	if len(quoted) != mostCommands {
		t.Errorf("%d commands, want %d", len(quoted), mostCommands)
	}
}

// plainCommand is a command of roster in a line of a script: without what a script puts
// around it to wait, to redirect and to go on.
var plainCommand = regexp.MustCompile(`^(?:[a-z]+ )*(?:sh -c '(?:exec )?)?(roster [^|>&]*?)(?:'| 2?>.*| \|.*| &\w+&)?$`)

// plainCommands returns the commands of roster in a script.
func plainCommands(script string) (commands []string) {
	for line := range strings.Lines(script) {
		if found := plainCommand.FindStringSubmatch(strings.TrimSpace(line)); found != nil {
			commands = append(commands, found[1])
		}
	}

	return commands
}
