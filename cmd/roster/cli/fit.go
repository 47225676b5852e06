package cli

import (
	"regexp"
	"slices"
	"strings"
)

// columns are the columns of a table on a terminal.
type columns struct {
	widths []int // of the widest cell
	words  []int // of the longest word
}

// longestWord is the longest word that is kept on one line, and shortWord the one that is kept while otherwise each
// row would become a list.
const (
	longestWord = 34
	shortWord   = 20
)

// hold makes the columns as wide as rows need.
func (c *columns) hold(rows ...[]string) {
	c.widths = widen(c.widths, rows...)
	c.words = slices.Grow(c.words, len(c.widths))[:len(c.widths)]

	for _, row := range rows {
		for i, cell := range row {
			for _, word := range wordsOf(cell, longestWord) {
				c.words[i] = max(c.words[i], min(longestWord, CellWidth(strings.TrimRight(word, " "))))
			}
		}
	}
}

// fit returns the widths of the columns in a line of a number of cells, and whether that is possible without breaking
// short words. The widest columns then have their cells on several lines. A number of 0 means that a line may have any
// length.
func (c *columns) fit(cells int) (widths []int, fits bool) {
	if widths, fits = c.fitWords(cells, longestWord); fits {
		return widths, true
	}

	return c.fitWords(cells, shortWord)
}

// fitWords is fit without breaking words up to the longest.
func (c *columns) fitWords(cells, longest int) (widths []int, fits bool) {
	widths = slices.Clone(c.widths)

	for cells > 0 && total(widths) > cells {
		// The widest column loses one cell at a time, so that several wide columns become alike.
		widest := -1
		for i, width := range widths {
			if width > min(c.words[i], longest) && (widest < 0 || width >= widths[widest]) {
				widest = i
			}
		}

		if widest < 0 {
			return widths, false
		}

		widths[widest]--
	}

	return widths, true
}

// total returns the cells of a line with columns of these widths.
func total(widths []int) int {
	sum := columnGap * (len(widths) - 1)
	for _, width := range widths {
		sum += width
	}

	return sum
}

// forTerminal returns the heading and the rows of a table for a line of a number of cells. If they don't fit, the
// columns that can be spared are left out and ids are short.
func (t Table) forTerminal(cells int) [][]string {
	rows := t.lines(true, false)
	if cells == 0 || total(widen(nil, rows...)) <= cells {
		return rows
	}

	rows = t.lines(false, false)
	for _, row := range rows[1:] {
		shorten(row)
	}

	return rows
}

// inMembers returns a row as lines with a heading and its cell each, for a line of a number of cells in which the
// columns don't fit. Empty cells are left out.
func inMembers(heading, row []string, cells int, style func(i int) string) string {
	names := 0
	for _, name := range heading {
		names = max(names, CellWidth(name))
	}

	var out strings.Builder
	for i, name := range heading {
		if row[i] == "" {
			continue
		}

		out.WriteString(inColumns([]string{strings.ToLower(name), row[i]}, []int{names, max(1, cells-names-columnGap)},
			func(column int) string {
				if column == 0 {
					return ""
				}

				return style(i)
			}))
	}

	return out.String()
}

// wordsOf returns the parts of a cell between which a line may end: words, and segments of
// URLs, paths and ids, and of words that are too long, such as versions. Spaces stay at the ends
// of words.
func wordsOf(cell string, longest int) []string {
	var words []string
	for _, word := range partsOf(cell) {
		if CellWidth(strings.TrimRight(word, " ")) > longest {
			words = append(words, strings.SplitAfter(word, "-")...)
			continue
		}

		words = append(words, word)
	}

	return words
}

// partsOf returns the words of a cell, and the segments of its URLs, paths and ids.
func partsOf(cell string) []string {
	var (
		words []string
		begin int
	)
	for i := 0; i+1 < len(cell); i++ {
		// A scheme keeps its slashes, and so does the beginning of a path.
		ends := strings.IndexByte(" ,;&?", cell[i]) >= 0 ||
			cell[i] == '/' && i > 0 && strings.IndexByte(":/ ", cell[i-1]) < 0

		if ends && cell[i+1] != ' ' && cell[i+1] != '/' {
			words = append(words, cell[begin:i+1])
			begin = i + 1
		}
	}

	return append(words, cell[begin:])
}

// wrap returns a cell as lines of a number of cells at most, broken between words if that is possible.
func wrap(cell string, cells int) []string {
	var (
		lines []string
		line  string
	)
	for _, word := range wordsOf(cell, min(cells, longestWord)) {
		if line != "" && CellWidth(strings.TrimRight(line+word, " ")) > cells {
			lines = append(lines, strings.TrimRight(line, " "))
			line = ""
		}

		// A word that is longer than a line is broken at the end of the line.
		for CellWidth(strings.TrimRight(word, " ")) > cells {
			head := prefixOf(word, cells)
			lines = append(lines, head)
			word = word[len(head):]
		}

		line += word
	}

	return append(lines, strings.TrimRight(line, " "))
}

// prefixOf returns the beginning of a text that takes at most a number of cells, and at least one character.
func prefixOf(text string, cells int) string {
	size := 0
	for cluster, width := range clusters(text) {
		if cells -= width; cells < 0 && size > 0 {
			break
		}

		size += len(cluster)
	}

	return text[:size]
}

var (
	nodeID   = regexp.MustCompile(`spiffe://[^/\s]+/roster/(node/[^\s,;]+)`)
	spiffeID = regexp.MustCompile(`spiffe://([^\s,;]+)`)
	longID   = regexp.MustCompile(`(^|[ (,])([0-9A-Za-z_-]{43}|[0-9a-f]{64}|[0-9A-HJKMNP-TV-Z]{26})([ ),.;:]|$)`)
)

// shortID is how many characters of an id a sentence shows.
const shortID = 8

// shorten makes the ids in a row short.
func shorten(row []string) {
	for i, cell := range row {
		row[i] = shortIDs(cell)
	}
}

// shortIDs returns a cell with short ids: a SPIFFE ID without its scheme, a node's without its
// domain, and the beginning of a key or rid inside a sentence. A cell that is a key, a
// fingerprint or a rid keeps it, for those who copy it.
func shortIDs(cell string) string {
	// A node's id comes first, because the other pattern would keep its domain.
	cell = nodeID.ReplaceAllString(cell, "$1")
	cell = spiffeID.ReplaceAllString(cell, "$1")

	if !strings.Contains(cell, " ") {
		return cell
	}

	return longID.ReplaceAllStringFunc(cell, func(match string) string {
		part := longID.FindStringSubmatch(match)
		return part[1] + part[2][:shortID] + "…" + part[3]
	})
}

// inColumns returns the cells of a row in columns, as one line, or as several if a cell is
// wider than its column. Style returns the escape sequence for a cell, if any.
func inColumns(row []string, widths []int, style func(i int) string) string {
	wrapped := make([][]string, len(row))
	height := 0

	for i, cell := range row {
		wrapped[i] = wrap(cell, widths[i])
		height = max(height, len(wrapped[i]))
	}

	var out strings.Builder
	for n := range height {
		gap := 0

		for i, lines := range wrapped {
			text := ""
			if n < len(lines) {
				text = lines[n]
			}

			// The gap is written only before text, so that no line ends with spaces.
			if text != "" {
				out.WriteString(strings.Repeat(" ", gap) + emphasize(text, style(i)))
				gap = 0
			}

			gap += widths[i] + columnGap - CellWidth(text)
		}

		out.WriteByte('\n')
	}

	return out.String()
}
