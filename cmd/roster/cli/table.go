package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// columnGap is the number of spaces between the widest cell of a column and the next
// column.
const columnGap = 2

// A Table has a heading for each column and a cell for each column in each row. A heading
// that begins with + is shown by -o wide only.
type Table struct {
	Head []string
	Rows [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// layOut returns a table as text: in columns for a terminal, else with tabs between the
// cells. A table without rows is empty.
func (c *Console) layOut(t Table) []byte {
	if len(t.Rows) == 0 {
		return nil
	}

	lines := t.lines(c.Format == FormatWide)

	var out strings.Builder
	if !c.IsTerminal {
		for _, line := range lines {
			out.WriteString(strings.Join(line, "\t") + "\n")
		}

		return []byte(out.String())
	}

	columns := tabwriter.NewWriter(&out, 0, 0, columnGap, ' ', 0)
	for _, line := range lines {
		fmt.Fprintln(columns, strings.Join(line, "\t"))
	}

	_ = columns.Flush() // a strings.Builder returns no errors

	return c.emphasizeHead(out.String())
}

// emphasizeHead returns the lines of a table without trailing spaces, the first one in bold.
func (c *Console) emphasizeHead(text string) []byte {
	var out strings.Builder

	first := true
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if first {
			line = c.bold(line)
			first = false
		}

		out.WriteString(line + "\n")
	}

	return []byte(out.String())
}

// lines returns the heading and the rows with the columns to show, each cell made
// printable.
func (t Table) lines(wide bool) [][]string {
	heading := make([]string, len(t.Head))
	for i, head := range t.Head {
		heading[i] = strings.TrimPrefix(head, "+")
	}

	lines := make([][]string, 0, len(t.Rows)+1)
	for _, row := range slices.Insert(slices.Clone(t.Rows), 0, heading) {
		var line []string
		for i, cell := range row {
			if wide || !strings.HasPrefix(t.Head[i], "+") {
				line = append(line, Printable(cell))
			}
		}

		lines = append(lines, line)
	}

	return lines
}

// A GrowingTable prints rows as they come, for a command that follows a stream. On a
// terminal its columns are as wide as their widest cell so far.
type GrowingTable struct {
	Console *Console
	Head    []string // as of a Table

	widths []int
}

// PrintHead prints the headings.
func (g *GrowingTable) PrintHead() error {
	return g.printLine(Table{Head: g.Head}.lines(g.Console.Format == FormatWide)[0], g.Console.bold)
}

// PrintRow prints one row.
func (g *GrowingTable) PrintRow(cells []string) error {
	lines := Table{Head: g.Head, Rows: [][]string{cells}}.lines(g.Console.Format == FormatWide)
	return g.printLine(lines[1], func(text string) string { return text })
}

func (g *GrowingTable) printLine(cells []string, emphasize func(string) string) error {
	if !g.Console.IsTerminal {
		_, err := io.WriteString(g.Console.Stdout, strings.Join(cells, "\t")+"\n")
		return err
	}

	g.widths = slices.Grow(g.widths, len(cells))[:len(cells)]

	var row strings.Builder
	for i, cell := range cells {
		width := utf8.RuneCountInString(cell)
		g.widths[i] = max(g.widths[i], width)
		row.WriteString(cell + strings.Repeat(" ", g.widths[i]-width+columnGap))
	}

	_, err := io.WriteString(g.Console.Stdout, emphasize(strings.TrimRight(row.String(), " "))+"\n")

	return err
}
