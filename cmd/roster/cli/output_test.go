package cli

import (
	"bytes"
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
