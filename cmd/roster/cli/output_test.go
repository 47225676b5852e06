package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// A document is printed in every format: an agent's answer has no table, and -o table must
// not swallow it.
func TestADocumentIsPrintedInEveryFormat(t *testing.T) {
	for _, format := range []Format{"", FormatTable, FormatWide, "json", "jsonl", "yaml"} {
		var out bytes.Buffer

		console := Console{Stdout: &out, Format: format}
		if err := console.PrintDocument([]byte(`{"text":"hello"}` + "\n")); err != nil {
			t.Errorf("-o %s: %v", format, err)
		}

		if !strings.Contains(out.String(), "hello") {
			t.Errorf("-o %s prints %q", format, &out)
		}
	}
}

// Every element of a text is returned, or the text is refused.
func TestSplitArrayRefusesTextBehindTheArray(t *testing.T) {
	for text, want := range map[string]int{
		`[]`: 0, ` [{"a":1}, {"b":2}] ` + "\n": 2,
		`[1][2]`: -1, "[1]\n[2]\n": -1, `[1] x`: -1, `[1]]`: -1, `[1`: -1, `[1,]`: -1,
	} {
		items, err := SplitArray([]byte(text))
		if err != nil {
			items = nil
		}

		if (err != nil) != (want < 0) || want >= 0 && len(items) != want || errors.Is(err, ErrNoArray) {
			t.Errorf("%q: %q, %v", text, items, err)
		}
	}
}
