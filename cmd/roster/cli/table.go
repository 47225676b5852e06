package cli

import (
	"io"
	"slices"
	"strings"
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

	if !c.IsTerminal {
		for _, line := range lines {
			text.WriteString(strings.Join(line, "\t") + "\n")
		}

		_, err := io.WriteString(c.Stdout, text.String())

		return err
	}

	widths := widen(nil, lines...)
	if err := c.printHead(inColumns(lines[0], widths)); err != nil {
		return err
	}

	for _, line := range lines[1:] {
		text.WriteString(inColumns(line, widths) + "\n")
	}

	_, err := io.WriteString(c.Stdout, text.String())

	return err
}

// widen returns the widths of columns that hold rows as well, in cells.
func widen(widths []int, rows ...[]string) []int {
	for _, row := range rows {
		widths = slices.Grow(widths, len(row))[:len(row)]
		for i, cell := range row {
			widths[i] = max(widths[i], CellWidth(cell))
		}
	}

	return widths
}

// inColumns returns the cells of a row as a line.
func inColumns(row []string, widths []int) string {
	var line strings.Builder
	for i, cell := range row {
		line.WriteString(pad(cell, widths[i]+columnGap))
	}

	return strings.TrimRight(line.String(), " ")
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

	g.widths = widen(g.widths, cells)

	return inColumns(cells, g.widths)
}
