package cli

import (
	"bytes"
	"strings"
	"testing"
)

// Requirement: FLD-021
func TestTextTakesTheCellsOfATerminal(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "plain": 5, "Größe": 5, "Gro\u0308ße": 5, "東京タワー": 10, "ﾀﾜｰ": 3, "ＡＢ": 4, "서울": 4,
		"\u1112\u1161\u11ab": 2, "🤖 bot": 6, "👩\u200d🔬": 2, "👩🏽\u200d🔬": 2, "❤": 1, "❤️": 2, "❤️\u200d🔥": 2, "🇳🇴": 2,
		"क्षेत्र": 4, "שָׁלוֹם": 4, "…": 1, "\u0301": 0, "🤖🤖": 4, "\u200d🤖": 2,
	} {
		if got := CellWidth(text); got != want {
			t.Errorf("CellWidth(%q) = %d, want %d", text, got, want)
		}
	}
}

// Requirement: FLD-021
func TestShortenCountsCells(t *testing.T) {
	for text, want := range map[string]string{
		"東京": "東京", "東京タ": "東京タ", "東京タワ": "東京…", "東京xタワ": "東京x…", "abcdef": "abcdef", "abcdefg": "abcde…",
		"abcde\u0301f": "abcde\u0301f", "abcde\u0301fg": "abcde\u0301…", "abcd👩\u200d🔬g": "abcd…",
	} {
		if got := Shorten(text, 6); got != want {
			t.Errorf("Shorten(%q) = %q, want %q", text, got, want)
		}
	}
}

// Requirement: FLD-021
func TestColumnsBeginInOneCell(t *testing.T) {
	table := Table{Head: []string{"NAME", "ORIGIN", "KIND"}}
	for _, name := range []string{"weather", "東京の天気", "🤖 bot", "❤️", "Gro\u0308ße", ""} {
		table.Add(name, "alpha.test", "a2a")
	}

	var printed, grown bytes.Buffer
	if err := onTerminal(&printed).printTable(table); err != nil {
		t.Fatal(err)
	}

	growing := GrowingTable{Console: onTerminal(&grown), Head: table.Head}
	if err := growing.PrintRow([]string{"東京の天気", "x", "y"}); err != nil {
		t.Fatal(err)
	}

	for _, row := range table.Rows {
		if err := growing.PrintRow(row); err != nil {
			t.Fatal(err)
		}
	}

	for _, line := range append(lines(printed.String())[1:], lines(grown.String())[1:]...) {
		before, _, found := strings.Cut(line, "alpha.test")
		if !found || CellWidth(before) != len("NAME")+8 {
			t.Errorf("the second column of %q begins in cell %d", line, CellWidth(before))
		}
	}
}

func onTerminal(out *bytes.Buffer) *Console {
	return NewConsole(Streams{Out: out, Err: out, OutIsTerminal: true}, "roster")
}

func lines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }
