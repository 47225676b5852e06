package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	httpproblem "github.com/roster-mesh/roster/directory/problem"
)

var update = flag.Bool("update", false, "write docs/reference anew")

const generated = "Generated from the code by `make reference`.\n\n"

// The pages of docs/reference say what the code says.
//
// Requirement: OPS-035
func TestReference(t *testing.T) {
	for name, page := range map[string]func(*testing.T) string{
		"commands.md":      commandsPage,
		"configuration.md": configurationPage,
		"errors.md":        errorsPage,
		"http.md":          httpPage,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("..", "..", "docs", "reference", name)

			text := []byte(page(t))
			if *update {
				must(t, os.WriteFile(path, text, 0o644))
			}

			if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, text) {
				t.Errorf("docs/reference/%s is stale (%v): run make reference", name, err)
			}
		})
	}
}

// cell returns text as a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// prose returns a help text as Markdown: paragraphs as they are, and paragraphs with
// indented lines as they are printed.
func prose(text string) string {
	var page strings.Builder

	for part := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		part = strings.Trim(part, "\n")
		if strings.HasPrefix(part, " ") || strings.Contains(part, "\n ") {
			part = "```text\n" + part + "\n```"
		} else {
			part = strings.NewReplacer("*", `\*`, "<", `\<`, "_", `\_`).Replace(part)
		}

		page.WriteString(part + "\n\n")
	}

	return page.String()
}

// commandsPage lists the commands with their help.
func commandsPage(*testing.T) string {
	p := (&world{env: map[string]string{}}).program(io.Discard, io.Discard)
	root := p.root()

	var page strings.Builder

	page.WriteString("# Commands\n\n" + generated +
		"`roster COMMAND --help` prints the same. [Command line](../cli.md) has what the commands share: connection, " +
		"identity, output and exit codes.\n\n")

	groups := append(slices.Clone(root.Groups()), &cobra.Group{Title: "Others:"})
	for _, group := range groups {
		fmt.Fprintf(&page, "- %s ", group.Title)

		separator := ""
		for _, c := range shownCommands(root) {
			if c.GroupID == group.ID {
				fmt.Fprintf(&page, "%s[%s](#%s)", separator, c.Name(), anchor(c))

				separator = ", "
			}
		}

		page.WriteString("\n")
	}

	page.WriteString("\n## Flags of all commands\n\n")
	writeFlags(&page, root.PersistentFlags().FlagUsages())

	for _, group := range groups {
		for _, c := range shownCommands(root) {
			if c.GroupID == group.ID {
				p.writeReference(&page, c)
			}
		}
	}

	return strings.TrimRight(page.String(), "\n") + "\n"
}

// shownCommands returns the subcommands that the help lists, and its topics.
func shownCommands(c *cobra.Command) (shown []*cobra.Command) {
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" && sub.Name() != "completion" {
			shown = append(shown, sub)
		}
	}

	slices.SortFunc(shown, func(a, b *cobra.Command) int { return cmp.Compare(a.Name(), b.Name()) })

	return shown
}

func anchor(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// writeReference writes a command and its subcommands.
func (p *program) writeReference(page *strings.Builder, c *cobra.Command) {
	level := strings.Repeat("#", strings.Count(c.CommandPath(), " ")+1)
	fmt.Fprintf(page, "%s %s\n\n", level, c.CommandPath())
	page.WriteString(prose(cmp.Or(c.Long, c.Short+".")))

	if c.Runnable() {
		fmt.Fprintf(page, "```text\n%s\n```\n\n", c.UseLine())
	}

	if len(c.Aliases) > 0 {
		fmt.Fprintf(page, "Aliases: `%s`.\n\n", strings.Join(c.Aliases, "`, `"))
	}

	writeFlags(page, ownFlags(p.session, c.LocalNonPersistentFlags()).FlagUsages())

	if c.Example != "" {
		fmt.Fprintf(page, "Examples:\n\n```text\n%s\n```\n\n", strings.Trim(c.Example, "\n"))
	}

	for _, sub := range shownCommands(c) {
		p.writeReference(page, sub)
	}
}

// usage is a line of the usages of flags.
var usage = regexp.MustCompile(`^ +((?:-\w, )?--([\w-]+)(?: \S+)?)   +(.*)$`)

// writeFlags writes a table of flags, unless there are none.
func writeFlags(page *strings.Builder, usages string) {
	rows := ""

	for line := range strings.Lines(usages) {
		part := usage.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if part != nil && part[2] != "help" {
			rows += fmt.Sprintf("| `%s` | %s |\n", part[1], cell(part[3]))
		}
	}

	if rows != "" {
		page.WriteString("| flag | meaning |\n|---|---|\n" + rows + "\n")
	}
}

// configurationPage lists the keys of the configuration that roster config prints.
func configurationPage(t *testing.T) string {
	w := &world{t: t, env: map[string]string{}}

	code, text, stderr := w.run("config")
	if code != 0 {
		t.Fatalf("roster config: %s", stderr)
	}

	var document yaml.Node
	must(t, yaml.Unmarshal([]byte(text), &document))

	var page strings.Builder

	page.WriteString("# Configuration\n\n" + generated +
		"`roster config` prints all keys with these texts as a file, and `roster init` writes such files. A node reads " +
		"one YAML file, `roster serve --config FILE`. Relative paths are relative to it. An unknown key, a wrong type " +
		"or a bad value ends `serve` before anything starts, with file, line and key.\n\n" +
		"| key | default | meaning |\n|---|---|---|\n")
	examples := writeKeys(&page, "", document.Content[0])
	page.WriteString("\n## Examples\n" + examples)

	return page.String()
}

// writeKeys writes a row for each key of a mapping, and for those below it. It returns the
// examples.
func writeKeys(page *strings.Builder, above string, mapping *yaml.Node) (examples string) {
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := above + key.Value

		shown := value.Value
		if value.Kind == yaml.SequenceNode && len(value.Content) == 0 {
			shown = "[]"
		}

		if shown == "" && value.Kind == yaml.ScalarNode {
			shown = `""`
		}

		if shown != "" {
			shown = "`" + shown + "`"
		}

		text, example := keyText(above, key, value)
		if example != "" {
			text += fmt.Sprintf(" [Example](#%s).", exampleAnchor.Replace(name))
			examples += fmt.Sprintf("\n### %s\n\n```yaml\n%s```\n", name, example)
		}

		fmt.Fprintf(page, "| `%s` | %s | %s |\n", name, shown, cell(text))

		switch {
		case value.Kind == yaml.MappingNode:
			examples += writeKeys(page, name+".", value)
		case value.Kind == yaml.SequenceNode && len(value.Content) > 0 && value.Content[0].Kind == yaml.MappingNode:
			examples += writeKeys(page, name+"[].", value.Content[0])
		}
	}

	return examples
}

// exampleAnchor makes the anchor of a heading.
var exampleAnchor = strings.NewReplacer(".", "", "[", "", "]", "")

// keyText returns the comments of a key as text, and the example in them.
func keyText(above string, key, value *yaml.Node) (text, example string) {
	comment := key.HeadComment
	if above == "" { // the first key's has that of the file before it
		comment = comment[strings.LastIndex(comment, "\n\n")+1:]
	}

	comment = strings.Join([]string{comment, key.LineComment, value.LineComment, value.HeadComment, value.FootComment,
		key.FootComment}, "\n")

	for line := range strings.Lines(comment) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "#")
		if strings.HasPrefix(line, "   ") {
			example += strings.TrimPrefix(line, "   ") + "\n"
		} else {
			text += strings.NewReplacer("*", `\*`, "<", `\<`).Replace(line) + "\n"
		}
	}

	return text, example
}

// errorsPage lists the problem types with their exit codes, which it takes from what the
// program does on such an answer.
func errorsPage(t *testing.T) string {
	var page strings.Builder

	page.WriteString("# Errors\n\n" + generated +
		"Every refusal is one `application/problem+json` body (RFC 9457). Its `type` ends in a name of this table, and " +
		"is a page at the node, `/problems/NAME`. `code` is that of the discovery profile, and `error.code` that of the " +
		"invocation draft. [Command line](../cli.md#output) lists the exit codes.\n\n" +
		"| type | status | exit code | `code` | `error.code` | meaning |\n|---|---|---|---|---|---|\n")

	for _, p := range httpproblem.All() {
		rule := httpproblem.RuleOf(p)
		w := newWorld(t, problem(rule.Status, string(p), rule.Title))
		w.env["ROSTER_TIMEOUT"] = "1s" // for those that the program waits out
		code, _, _ := w.run("get", "weather")

		fmt.Fprintf(&page, "| `%s` | %d | %d | `%s` | `%s` | **%s.** %s |\n", p, rule.Status, code, rule.Code,
			rule.ErrorCode, rule.Title, cell(rule.Explanation))
	}

	return page.String()
}

// operation is what http.md shows of an operation.
type operation struct {
	Tags       []string
	Summary    string
	Parameters []reference
}

type reference struct {
	Ref string `yaml:"$ref"`
}

// httpPage lists the routes of the description of the API.
func httpPage(t *testing.T) string {
	text, err := os.ReadFile(filepath.Join("..", "..", "api", "openapi.yaml"))
	must(t, err)

	var document struct {
		Paths      map[string]yaml.Node
		Components struct {
			Parameters map[string]struct{ Name, In, Description string }
		}
	}
	must(t, yaml.Unmarshal(text, &document))

	var page strings.Builder

	page.WriteString("# HTTP routes\n\n" + generated +
		"Every node describes parameters, bodies and refusals of each route at `/openapi.json`. " +
		"[HTTP conventions](../http.md) has the rules that all routes share, [errors](errors.md) the refusals. GET " +
		"routes answer HEAD too.\n\n" +
		"| route | callers | purpose | query |\n|---|---|---|---|\n")

	parameters := map[string]string{} // by key
	methods := []string{"get", "post", "put", "patch", "delete"}

	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		item := document.Paths[path]

		operations := map[string]yaml.Node{}
		must(t, item.Decode(&operations))

		for _, method := range methods {
			node, ok := operations[method]
			if !ok {
				continue
			}

			var o operation
			must(t, node.Decode(&o))

			var query []string
			for _, r := range o.Parameters {
				key := r.Ref[strings.LastIndex(r.Ref, "/")+1:]
				if p := document.Components.Parameters[key]; p.In == "query" {
					query = append(query, "`"+p.Name+"`")
					parameters[key] = fmt.Sprintf("| `%s` | %s |\n", p.Name, cell(p.Description))
				}
			}

			fmt.Fprintf(&page, "| `%s %s` | %s | %s | %s |\n", strings.ToUpper(method), path,
				strings.Join(o.Tags, ", "), cell(o.Summary), strings.Join(query, " "))
		}
	}

	page.WriteString("\n## Query parameters\n\nA name that stands here twice has another meaning on some routes.\n\n" +
		"| parameter | meaning |\n|---|---|\n")

	var rows []string
	for _, row := range parameters {
		rows = append(rows, row)
	}

	slices.Sort(rows)
	page.WriteString(strings.Join(slices.Compact(rows), ""))

	return page.String()
}
