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
// that begins with + is shown by -o wide only, and one that begins with - is left out on a
// terminal on which the table doesn't fit.
type Table struct {
	Head []string
	Rows [][]string

	Record bool // it has one row, which a narrow terminal shows as a list of its members
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// printTable prints a table: in columns on a terminal, which it fits unless -o wide is given,
// else with tabs between the cells. A table without rows prints nothing.
func (c *Console) printTable(t Table) error {
	if len(t.Rows) == 0 {
		return nil
	}

	if c.IsTerminal {
		return c.printColumns(t)
	}

	lines := t.lines(true, c.Format == FormatWide)
	if c.NoHeaders {
		lines = lines[1:]
	}

	var text strings.Builder
	for _, line := range lines {
		text.WriteString(strings.Join(line, "\t") + "\n")
	}

	_, err := io.WriteString(c.Stdout, text.String())

	return err
}

// printColumns prints a table on a terminal.
func (c *Console) printColumns(t Table) error {
	rows := t.lines(true, true)
	if c.Format != FormatWide {
		rows = t.forTerminal(c.columns)
	}

	var layout columns
	layout.hold(rows...)
	widths, fits := layout.fit(c.width())

	var text strings.Builder

	// A row whose words would be broken becomes a list of its members.
	if t.Record && total(layout.widths) > c.width() && c.width() > 0 || !fits {
		for i, row := range rows[1:] {
			if i > 0 {
				text.WriteByte('\n')
			}

			text.WriteString(inMembers(rows[0], row, c.width(), c.style(rows[0], row)))
		}

		return c.printEmphasized(text.String())
	}

	if !c.NoHeaders {
		text.WriteString(inColumns(rows[0], widths, c.bold))
	}

	for _, row := range rows[1:] {
		text.WriteString(inColumns(row, widths, c.style(rows[0], row)))
	}

	return c.printEmphasized(text.String())
}

// width returns the cells of a line of the table; 0 if it may be of any length.
func (c *Console) width() int {
	if c.Format == FormatWide {
		return 0
	}

	return c.columns
}

// bold is the style of headings.
func (c *Console) bold(int) string {
	if c.NoColor {
		return ""
	}

	return escapeBold
}

// style returns the style of the cells of a row.
func (c *Console) style(heading, row []string) func(i int) string {
	return func(i int) string {
		if c.NoColor || c.Format == FormatWide {
			return ""
		}

		return colourOf(heading[i], row[i])
	}
}

// printEmphasized prints lines of printable text with this program's escape sequences, which
// Stdout would escape.
func (c *Console) printEmphasized(text string) error {
	_, err := io.WriteString(c.streams.Out, text)
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

// lines returns the heading and the rows with the columns to show, each cell made
// printable: without those that can be spared, or with those that only -o wide has.
func (t Table) lines(spare, wide bool) [][]string {
	heading := make([]string, len(t.Head))
	for i, head := range t.Head {
		heading[i] = strings.TrimLeft(head, "+-")
	}

	lines := make([][]string, 0, len(t.Rows)+1)
	for _, row := range slices.Insert(slices.Clone(t.Rows), 0, heading) {
		var line []string
		for i, cell := range row {
			isWide, isSpare := strings.HasPrefix(t.Head[i], "+"), strings.HasPrefix(t.Head[i], "-")
			if (wide || !isWide) && (spare || !isSpare) {
				line = append(line, Printable(cell))
			}
		}

		lines = append(lines, line)
	}

	return lines
}

// A GrowingTable prints rows as they come, for a command that follows a stream. On a
// terminal its columns are as wide as their widest cell so far, as far as they fit.
type GrowingTable struct {
	Console *Console
	Head    []string // as of a Table

	layout columns
}

// PrintHead prints the headings.
func (g *GrowingTable) PrintHead() error {
	if g.Console.NoHeaders {
		return nil
	}

	return g.print(g.lines(Table{Head: g.Head})[0], g.Console.bold)
}

// PrintRow prints one row.
func (g *GrowingTable) PrintRow(cells []string) error {
	lines := g.lines(Table{Head: g.Head, Rows: [][]string{cells}})
	if g.Console.IsTerminal && g.Console.width() > 0 {
		shorten(lines[1])
	}

	return g.print(lines[1], g.Console.style(lines[0], lines[1]))
}

// lines returns the heading and the rows of a table with the columns to show.
func (g *GrowingTable) lines(t Table) [][]string {
	wide := g.Console.Format == FormatWide
	return t.lines(wide || !g.Console.IsTerminal || g.Console.width() == 0, wide)
}

// print prints one row: in columns on a terminal, else with tabs between the cells.
func (g *GrowingTable) print(row []string, style func(i int) string) error {
	if !g.Console.IsTerminal {
		_, err := io.WriteString(g.Console.Stdout, strings.Join(row, "\t")+"\n")
		return err
	}

	g.layout.hold(row)

	// The rows above stand already, so a row that doesn't fit is wider.
	widths, _ := g.layout.fit(g.Console.width())

	return g.Console.printEmphasized(inColumns(row, widths, style))
}
