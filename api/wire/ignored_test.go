package wire

import (
	"strings"
	"testing"
)

func TestIgnoredPartsAreQuotedSafely(t *testing.T) {
	for _, c := range []struct {
		item   Ignored
		header string
	}{
		{Ignored{"agnet", "agent"}, "agnet;near=agent"},
		{Ignored{"peers:nowhere.test", ""}, "peers:nowhere.test"},
		{Ignored{"/protcols", "/protocols"}, `"/protcols";near="/protocols"`},
		{Ignored{`a"b\c`, ""}, `"a\"b\\c"`},
		{Ignored{"a, b", ""}, `%"a,%20b"`},
		{Ignored{"größe", ""}, `%"gr%c3%b6%c3%9fe"`},
		{Ignored{"a\r\nSet-Cookie: x", ""}, `%"a%0d%0aSet-Cookie:%20x"`},
		{Ignored{"", ""}, `""`},
	} {
		header := AppendIgnored("", c.item)
		if header != c.header {
			t.Errorf("%q is %s, want %s", c.item, header, c.header)
		}

		if items := ParseIgnored([]string{header}); len(items) != 1 || items[0] != c.item {
			t.Errorf("%s is read as %q", header, items)
		}
	}
}

func TestIgnoredPartsAreBounded(t *testing.T) {
	header := ""
	for range 100 {
		header = AppendIgnored(header, Ignored{Name: strings.Repeat("ö", 1000), Near: "\xff"})
	}

	items := ParseIgnored([]string{header})
	if len(items) != MaxIgnored || items[7].Name != strings.Repeat("ö", 32) || items[7].Near != "" {
		t.Errorf("%d items, the last is %q", len(items), items[len(items)-1])
	}

	if got := ParseIgnored([]string{"a;near=b", `"c", "d`, ";;", `%"%ff"`}); len(got) != 2 ||
		got[0] != (Ignored{"a", "b"}) || got[1] != (Ignored{"c", ""}) {
		t.Errorf("read %q", got)
	}
}
