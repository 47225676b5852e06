package content

import (
	"strings"
	"testing"
)

// A tag of ASCII has the same normal form by the short way as by the long one.
func FuzzNormalTag(f *testing.F) {
	for _, s := range []string{"", "Mountain_Huts", " a  b\t", "-a-", "__", "\x7fZ", "Café_Noir"} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, tag string) {
		tag = strings.Map(func(r rune) rune { return r & 0x7f }, tag)
		if short, long := normalASCII(tag), normalAny(tag); short != long || NormalTag(tag) != long {
			t.Fatalf("%q is %q by the short way, %q by the long one", tag, short, long)
		}
	})
}
