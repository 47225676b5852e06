// Package names judges the names of agents as people read them: which characters no name
// has, and which names look like another one (Unicode Technical Standard 39).
//
//	err := names.Check("pay\u200bments")       // refused: U+200B shows nothing
//	names.FlagsOf("pаypal")                    // MixedScript: the first a is Cyrillic
//	names.Skeleton("paypa1") == names.Skeleton("paypal")
package names

import (
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/mtibben/confusables"

	"github.com/roster-mesh/roster/directory"
)

// Flags are doubts about a name that a reader should see.
type Flags uint8

// The flags of a name. The first two are properties of the name alone.
const (
	MixedScript Flags = 1 << iota // its letters are of several scripts
	Format                        // it has characters that Check refuses; a peer sent it
	Confusable                    // it looks like an earlier name of its domain that the reader sees
)

// Names returns the flags as answers show them.
func (f Flags) Names() []string {
	var list []string
	for _, flag := range []struct {
		is   Flags
		name string
	}{{MixedScript, "mixed_script"}, {Confusable, "confusable"}, {Format, "format"}} {
		if f&flag.is != 0 {
			list = append(list, flag.name)
		}
	}

	return list
}

// Check refuses a new name with an invisible character, or with one that changes the display
// of others: control and format characters, those for the direction of writing, line
// separators, and space at either end. It refuses a part that is . or .. too: a URL with
// the name would be of another path. The error is BadName.
func Check(name string) error {
	first, _ := utf8.DecodeRuneInString(name)
	last, _ := utf8.DecodeLastRuneInString(name)

	// A space within the name can be seen, one at its end can't.
	if unicode.IsSpace(first) || unicode.IsSpace(last) {
		return directory.Refuse(directory.BadName, "the agent name %+q begins or ends with a space", name)
	}

	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." {
			return directory.Refuse(directory.BadName,
				"the agent name %+q has the part %q, which means another path in a URL", name, part)
		}
	}

	for at, r := range name {
		if kind := unseen(r); kind != "" {
			return directory.Refuse(directory.BadName,
				"the agent name %+q has %U at byte %d, which is %s; people can't see it", name, r, at, kind)
		}
	}

	return nil
}

// unseen returns the reason why no name may have a character; empty if names may.
func unseen(r rune) string {
	switch {
	case r > ' ' && r < 0x7f:
		return ""
	case unicode.Is(unicode.Cc, r):
		return "a control character"
	case unicode.Is(unicode.Bidi_Control, r):
		return "a character for the direction of writing"
	case unicode.Is(unicode.Cf, r):
		return "a format character"
	case unicode.In(r, unicode.Zl, unicode.Zp):
		return "a line separator"
	case directory.IsIgnorable(r):
		return "an invisible character"
	case unicode.Is(unicode.Noncharacter_Code_Point, r):
		return "no character"
	case directory.IsUnseen(r):
		return "a private character"
	}

	return ""
}

// FlagsOf returns the flags of a name by itself: MixedScript and Format.
func FlagsOf(name string) Flags {
	if isPlain(name) {
		return 0
	}

	var flags Flags
	if Check(name) != nil {
		flags |= Format
	}

	if isMixed(name) {
		flags |= MixedScript
	}

	return flags
}

// isPlain reports whether a name is visible ASCII, as most are.
func isPlain(name string) bool {
	for i := range len(name) {
		if name[i] <= ' ' || name[i] >= 0x7f {
			return false
		}
	}

	return true
}

// scripts that are written together: Japanese, Korean and Chinese with Bopomofo.
var together = [][]*unicode.RangeTable{
	{unicode.Han, unicode.Hiragana, unicode.Katakana},
	{unicode.Han, unicode.Hangul},
	{unicode.Han, unicode.Bopomofo},
}

// isMixed reports whether the letters of a name are of scripts that are not written together
// (UTS 39, 5.1, without script extensions).
func isMixed(name string) bool {
	var found []*unicode.RangeTable
	for _, r := range name {
		// Digits and punctuation are used with every script.
		if unicode.In(r, unicode.Common, unicode.Inherited) || unicode.In(r, found...) {
			continue
		}

		if script := scriptOf(r); script != nil {
			found = append(found, script)
		}
	}

	if len(found) < 2 {
		return false
	}

	for _, group := range together {
		if isSubset(found, group) {
			return false
		}
	}

	return true
}

func isSubset(found, group []*unicode.RangeTable) bool {
	for _, script := range found {
		in := false
		for _, member := range group {
			in = in || member == script
		}

		if !in {
			return false
		}
	}

	return true
}

// scriptOf returns the script of a character; nil for one that is not assigned.
func scriptOf(r rune) *unicode.RangeTable {
	if r < utf8.RuneSelf {
		return unicode.Latin // the others are Common
	}

	for _, script := range unicode.Scripts {
		if unicode.Is(script, r) {
			return script
		}
	}

	return nil
}

// asciiSkeletons are the skeletons of the ASCII characters. Those of one byte, as nearly all
// are, are in single; the others are zero there.
type asciiSkeletons struct {
	single [utf8.RuneSelf]byte
	texts  [utf8.RuneSelf]string
}

var ascii = sync.OnceValue(func() *asciiSkeletons {
	skeletons := new(asciiSkeletons)
	for r := range skeletons.texts {
		text := confusables.Skeleton(string(rune(r)))

		skeletons.texts[r] = text
		if len(text) == 1 {
			skeletons.single[r] = text[0]
		}
	}

	return skeletons
})

// AppendSkeleton appends the skeleton of a name (UTS 39, 4): two names look alike if theirs
// are equal.
//
// The table is of Unicode 13; a character that is newer looks like itself.
func AppendSkeleton(data []byte, name string) []byte {
	start := len(data)

	skeletons := ascii()
	for i := range len(name) {
		if name[i] >= utf8.RuneSelf {
			// Only ASCII is read character by character, so the whole name is read anew.
			return append(data[:start], confusables.Skeleton(visible(name))...)
		}

		if single := skeletons.single[name[i]]; single != 0 {
			data = append(data, single)
		} else {
			data = append(data, skeletons.texts[name[i]]...)
		}
	}

	return data
}

// visible returns a name without the characters that show nothing.
func visible(name string) string {
	return strings.Map(func(r rune) rune {
		if directory.IsIgnorable(r) {
			return -1
		}

		return r
	}, name)
}

// Alike reports whether two different names look alike.
func Alike(a, b string) bool {
	var x, y [64]byte
	return a != b && string(AppendSkeleton(x[:0], a)) == string(AppendSkeleton(y[:0], b))
}
