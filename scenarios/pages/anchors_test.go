package pages

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var anchoredLink = regexp.MustCompile(`\]\(([^)#\s:]*)#([^)\s]+)\)`)

// A link to a section leads to a heading.
func TestLinksLeadToHeadings(t *testing.T) {
	top, err := filepath.Glob(filepath.Join("..", "..", "*.md"))
	if err != nil || len(top) == 0 {
		t.Fatal(top, err)
	}

	all := slices.Collect(maps.Keys(pages(t)))
	for _, page := range top {
		all = append(all, filepath.Base(page))
	}

	slices.Sort(all)

	for _, page := range slices.Compact(all) {
		for _, link := range anchoredLink.FindAllStringSubmatch(textOf(t, page), -1) {
			target := page
			if link[1] != "" {
				target = path.Join(path.Dir(page), link[1])
			}

			if !slices.Contains(anchorsOf(textOf(t, target)), link[2]) {
				t.Errorf("%s links to %s#%s, which is no heading there", page, target, link[2])
			}
		}
	}
}

func textOf(t *testing.T, page string) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

// anchorsOf returns the anchors that GitHub makes of a page's headings.
func anchorsOf(text string) (anchors []string) {
	inside := false

	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inside = !inside
		}

		heading := strings.TrimLeft(line, "#")
		if inside || heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}

		anchors = append(anchors, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}

			return -1
		}, strings.TrimSpace(heading)))
	}

	return anchors
}
