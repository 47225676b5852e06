package api

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The draft's checklist is answered point by point, in its order, and what is said
// to show an answer is there.
//
// Requirement: XU-032
func TestTheChecklistIsAnswered(t *testing.T) {
	text, err := os.ReadFile("CHECKLIST.md")
	must(t, err)

	points := regexp.MustCompile(`(?m)^\d+\. \*\*(.*?)\*\*: (.*)$`).FindAllStringSubmatch(string(text), -1)

	want := []string{"conformance level", "metadata serialization", "required and optional fields", "unknown-field",
		"freshness and expiration",
		"hard-filter", "score components", "redaction", "federation provenance", "metadata injection and ranking abuse"}
	if len(points) != len(want) {
		t.Fatalf("%d points are answered, want %d", len(points), len(want))
	}

	shown := regexp.MustCompile("((?:`Test\\w+`(?:, | and )?)+) \\(([\\w./]+_test\\.go)\\)|testdata/[\\w.-]+\\.txt")
	for i, p := range points {
		if !strings.Contains(strings.ToLower(p[1]), want[i]) {
			t.Errorf("point %d is %q, want %q", i+1, p[1], want[i])
		}

		found := shown.FindAllStringSubmatch(p[2], -1)
		if len(found) == 0 {
			t.Errorf("%s: nothing shows it", p[1])
		}

		for _, f := range found {
			file := f[2]
			if file == "" {
				file = f[0]
			}

			source, err := os.ReadFile(file)
			if err != nil {
				t.Errorf("%s: %v", p[1], err)
			}

			for _, name := range regexp.MustCompile(`Test\w+`).FindAllString(f[1], -1) {
				if !strings.Contains(string(source), "func "+name+"(") {
					t.Errorf("%s: %s has no %s", p[1], file, name)
				}
			}
		}
	}
}
