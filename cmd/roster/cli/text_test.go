package cli

import (
	"io"
	"strings"
	"testing"
	"time"
)

func TestPrintableLeavesTextAlone(t *testing.T) {
	for _, text := range []string{"", "plain", "Größe 東京 שלום", "👩\u200d🔬", "👩🏽\u200d🔬", "❤️\u200d🔥", "می\u200cخواهم",
		"क्\u200dष"} {
		if got := Printable(text); got != text {
			t.Errorf("Printable(%q) = %q", text, got)
		}
	}
}

// Requirement: SEC-015
func TestPrintableEscapesWhatATerminalActsOnOrHides(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b[2J":          `\x1b[2J`,
		"\u009b2J":         `\x9b2J`,
		"\x9b2J":           `\x9b2J`, // a byte that is not UTF-8
		"del\x7f":          `del\x7f`,
		"\u202egnp.exe":    `\u202egnp.exe`,
		"pay\u200bments":   `pay\u200bments`,
		"pay\u200dments":   `pay\u200dments`, // a joiner that joins nothing
		"👩\u200d\u200d🔬":   "👩\u200d" + `\u200d🔬`,
		"a\u3164b":         `a\u3164b`,
		"\u2028":           `\u2028`,
		"\U000e0041":       `\U000e0041`,
		"\ue000":           `\ue000`,
		"invoice\ufe0f":    `invoice\ufe0f`, // FLD-001: a variation selector that selects nothing
		"x\ufe0f\u200dy":   `x\ufe0f\u200dy`,
		"葛\U000e0100":      `葛\U000e0100`,
		"a\u180bb\u180e":   `a\u180bb\u180e`,
		"\ufdd0\U0001ffff": `\ufdd0\U0001ffff`,
	} {
		if got := Printable(text); got != want {
			t.Errorf("Printable(%q) = %s, want %s", text, got, want)
		}
	}
}

// JSON on a terminal stays JSON of the same value, in whatever pieces it is written.
//
// Requirement: SEC-015, OPS-004
func TestAScreenEscapesAsJSONDoes(t *testing.T) {
	const (
		text = "{\n\t\"a\": \"é👩\u200d🔬\u009b\U000e0041\u202e\"\r\n}\n"
		want = "{\n\t\"a\": \"é👩\u200d🔬" + `\u009b\udb40\udc41\u202e` + "\" \n}\n"
	)

	for size := 1; size <= len(text); size++ {
		var out strings.Builder

		console := NewConsole(Streams{Out: &out, Err: io.Discard, OutIsTerminal: true}, "roster")
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			if _, err := io.WriteString(console.Stdout, rest[:min(size, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}

		if out.String() != want {
			t.Fatalf("in pieces of %d: %q, want %q", size, out.String(), want)
		}
	}
}

// A time is relative in a table on a terminal alone: programs read the others.
//
// Requirement: OPS-004
func TestOnlyATableOnATerminalHasRelativeTimes(t *testing.T) {
	at := time.Now().Add(-3 * time.Hour)

	for format, want := range map[Format]string{
		"": "3 h ago", FormatTable: "3 h ago", FormatWide: FormatTime(at),
		FormatJSON: FormatTime(at), FormatJSONL: FormatTime(at), FormatYAML: FormatTime(at),
	} {
		if got := (&Console{IsTerminal: true, Format: format}).Time(at); got != want {
			t.Errorf("-o %q: %q, want %q", format, got, want)
		}
	}

	if got := (&Console{}).Time(at); got != FormatTime(at) {
		t.Errorf("not on a terminal: %q, want %q", got, FormatTime(at))
	}
}
