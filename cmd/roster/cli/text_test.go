package cli

import "testing"

func TestPrintableLeavesTextAlone(t *testing.T) {
	for _, text := range []string{"", "plain", "Größe 東京 שלום", "👩\u200d🔬", "می\u200cخواهم"} {
		if got := Printable(text); got != text {
			t.Errorf("Printable(%q) = %q", text, got)
		}
	}
}
