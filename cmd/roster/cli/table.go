package cli

import (
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

// printTable prints a table: in columns on a terminal, else with tabs between the cells. A
// table without rows prints nothing.
func (c *Console) printTable(t Table) error {
	if len(t.Rows) == 0 {
		return nil
	}

	var text strings.Builder

	lines := t.lines(c.Format == FormatWide)
	if c.NoHeaders && !c.IsTerminal {
		lines = lines[1:]
	}

	for _, line := range lines {
		text.WriteString(strings.Join(line, "\t") + "\n")
	}

	if !c.IsTerminal {
		_, err := io.WriteString(c.Stdout, text.String())
		return err
	}

	var columns strings.Builder
	layout := tabwriter.NewWriter(&columns, 0, 0, columnGap, ' ', 0)
	_, _ = io.WriteString(layout, text.String()) // a strings.Builder returns no errors
	_ = layout.Flush()

	head, rows, _ := strings.Cut(trimLines(columns.String()), "\n")
	if err := c.printHead(head); err != nil {
		return err
	}

	_, err := io.WriteString(c.Stdout, rows)

	return err
}

// trimLines returns text without the spaces at the end of its lines.
func trimLines(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimRight(line, " \n") + "\n")
	}

	return out.String()
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
	head := Table{Head: g.Head}.lines(g.Console.Format == FormatWide)[0]
	return g.Console.printHead(g.layOut(head))
}

// PrintRow prints one row.
func (g *GrowingTable) PrintRow(cells []string) error {
	lines := Table{Head: g.Head, Rows: [][]string{cells}}.lines(g.Console.Format == FormatWide)
	_, err := io.WriteString(g.Console.Stdout, g.layOut(lines[1])+"\n")

	return err
}

// layOut returns the cells of a row as a line.
func (g *GrowingTable) layOut(cells []string) string {
	if !g.Console.IsTerminal {
		return strings.Join(cells, "\t")
	}

	g.widths = slices.Grow(g.widths, len(cells))[:len(cells)]

	var row strings.Builder
	for i, cell := range cells {
		width := utf8.RuneCountInString(cell)
		g.widths[i] = max(g.widths[i], width)
		row.WriteString(cell + strings.Repeat(" ", g.widths[i]-width+columnGap))
	}

	return strings.TrimRight(row.String(), " ")
}
