package directory

import "unicode"

// IsIgnorable reports whether r shows nothing by itself: it has the derived property
// Default_Ignorable_Code_Point (UTS 39, 4), or is a format character.
func IsIgnorable(r rune) bool {
	return r > unicode.MaxASCII && unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Variation_Selector)
}

// IsUnseen reports whether r is a character that people can't see, or that changes how others are
// shown: a control, ignorable, private or unassignable character (RFC 7493, 2.1), or a line
// separator.
func IsUnseen(r rune) bool {
	if r > ' ' && r < 0x7f {
		return false
	}

	return IsIgnorable(r) || unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs,
		unicode.Noncharacter_Code_Point)
}
