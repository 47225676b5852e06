package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// cobra's own generator of manual pages writes Markdown and renders it by two more
// modules, a percent of the program. These pages are written as roff at once.

// manualDate returns the date of the pages: now, or SOURCE_DATE_EPOCH in Unix seconds.
func manualDate() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Now(), nil
	}

	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: must be Unix seconds, got %q", epoch)
	}

	return time.Unix(seconds, 0).UTC(), nil
}

// writeManual writes the manual page of one command.
func writeManual(w io.Writer, session *connect.Session, c *cobra.Command, date time.Time) error {
	// Cobra adds the command and the flag only when it runs, and the page lists them.
	c.InitDefaultHelpCmd()
	c.InitDefaultHelpFlag()

	description := c.Long
	description = cmp.Or(description, c.Short)

	var page strings.Builder

	name := pageName(c)
	fmt.Fprintf(&page, ".TH %q \"1\" %q \"Roster\" \"Roster\"\n", strings.ToUpper(name), date.Format("Jan 2006"))
	section(&page, "NAME", roff(name)+" \\- "+roff(c.Short))

	if !c.IsAdditionalHelpTopicCommand() {
		section(&page, "SYNOPSIS", "\\fB"+roff(c.UseLine())+"\\fP")
	}

	section(&page, "DESCRIPTION", paragraphs(description))
	section(&page, "OPTIONS", verbatim(ownFlags(session, c.NonInheritedFlags()).FlagUsages()))
	section(&page, "GLOBAL OPTIONS", verbatim(c.InheritedFlags().FlagUsages()))
	section(&page, "EXAMPLES", verbatim(c.Example))
	section(&page, "SEE ALSO", strings.Join(related(c), ", "))

	_, err := io.WriteString(w, page.String())

	return err
}

// writeManuals writes the pages of a command and of those below it, one file each.
func writeManuals(session *connect.Session, c *cobra.Command, dir string, date time.Time) error {
	for _, child := range c.Commands() {
		if !hasManual(child) {
			continue
		}

		if err := writeManuals(session, child, dir, date); err != nil {
			return err
		}
	}

	var page strings.Builder
	if err := writeManual(&page, session, c, date); err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(dir, pageName(c)+".1"), []byte(page.String()), 0o644)
}

// hasManual reports whether a command or help topic has a page.
func hasManual(c *cobra.Command) bool {
	return c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand()
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// section writes a section, unless it is empty.
func section(page *strings.Builder, title, text string) {
	if text != "" {
		fmt.Fprintf(page, ".SH %s\n%s\n", title, text)
	}
}

// paragraphs formats text whose paragraphs are separated by blank lines. Paragraphs with
// indented lines keep their line breaks.
func paragraphs(text string) string {
	var parts []string

	for part := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(part, " ") || strings.Contains(part, "\n ") {
			parts = append(parts, verbatim(part))
		} else {
			parts = append(parts, ".PP\n"+roff(part))
		}
	}

	return strings.Join(parts, "\n")
}

// verbatim formats text that keeps its line breaks.
func verbatim(text string) string {
	text = strings.Trim(text, "\n")
	if text == "" {
		return ""
	}

	return ".PP\n.nf\n" + roff(text) + "\n.fi"
}

// roff escapes backslashes and hyphens, and lines that would begin a request.
func roff(text string) string {
	text = strings.NewReplacer("\\", "\\e", "-", "\\-").Replace(text)

	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = "\\&" + line
		}
	}

	return strings.Join(lines, "\n")
}

// related returns references to the pages of the parent and of the commands below.
func related(c *cobra.Command) []string {
	reference := func(to *cobra.Command) string { return "\\fB" + roff(pageName(to)) + "\\fP(1)" }

	var all []string
	if c.HasParent() {
		all = append(all, reference(c.Parent()))
	}

	for _, child := range c.Commands() {
		if hasManual(child) {
			all = append(all, reference(child))
		}
	}

	return all
}
