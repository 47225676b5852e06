package names

import (
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// The derived property of Unicode 17, DerivedCoreProperties.txt, and the noncharacters.
//
// Requirement: FLD-001
func TestANameHasNoIgnorableCharacterAndNoNoncharacter(t *testing.T) {
	ranges := [][2]rune{
		{0xad, 0xad}, {0x34f, 0x34f}, {0x61c, 0x61c}, {0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f},
		{0x200b, 0x200f}, {0x202a, 0x202e}, {0x2060, 0x206f}, {0x3164, 0x3164}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff},
		{0xffa0, 0xffa0}, {0xfff0, 0xfff8}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
		{0xfdd0, 0xfdef},
	}
	for plane := rune(0); plane <= 0x10; plane++ {
		ranges = append(ranges, [2]rune{plane<<16 | 0xfffe, plane<<16 | 0xffff})
	}

	for _, each := range ranges {
		for r := each[0]; r <= each[1]; r++ {
			name := "invoice" + string(r) + "-reader"
			if err := Check(name); directory.ProblemOf(err) != directory.BadName {
				t.Errorf("%+q: %v", name, err)
			}

			if FlagsOf(name)&Format == 0 {
				t.Errorf("%+q has no flag", name)
			}
		}
	}

	if !Alike("invoice\ufe0f-reader", "invoice-reader") || !Alike("invoice\U000e0100", "inv\u180boice") {
		t.Error("an ignorable character makes another skeleton")
	}
}

// Requirement: SEC-015
func TestANameHasNoCharacterThatPeopleDoNotSee(t *testing.T) {
	for _, name := range []string{
		"pay\u200bments", "pay\u200dments", "\ufeffpayments", "pay\u00adments", "\u202epayments", "pay\u2066ments",
		"pay\u061cments", "pay\u2028ments", "pay\u2029ments", "pay\u3164ments", "pay\u115fments",
		"pay\U000e0041ments",
		"pay\ue000ments", "pay\x1bments", "pay\u009bments", "pay\tments", " payments", "payments ", "\u00a0payments",
		"payments\u3000", "payments\u2003",
	} {
		if err := Check(name); directory.ProblemOf(err) != directory.BadName {
			t.Errorf("%+q: %v", name, err)
		}

		if FlagsOf(name)&Format == 0 {
			t.Errorf("%+q has no flag", name)
		}
	}

	for _, name := range []string{
		"payments", "pay ments", "Größe", "東京タワー", "שלום", "имя", "https://a.example/x", "café", "क्षेत्र",
		"a", "🤖 bot",
	} {
		if err := Check(name); err != nil {
			t.Error(err)
		}

		if flags := FlagsOf(name); flags != 0 {
			t.Errorf("%q has the flags %q", name, flags.Names())
		}
	}
}

// A name that is put into a URL as it is names no other path.
//
// Requirement: SEC-015
func TestANameIsNoPathToElsewhere(t *testing.T) {
	for _, name := range []string{".", "..", "../ad/r/1", "a/../b", "a/.", "a/..", "./a"} {
		if err := Check(name); directory.ProblemOf(err) != directory.BadName {
			t.Errorf("%q: %v", name, err)
		}
	}

	for _, name := range []string{"...", "a..b", ".a", "a.", "a/b", "https://a.example/x..y"} {
		if err := Check(name); err != nil {
			t.Error(err)
		}
	}
}

// Requirement: SEC-015
func TestMixedScriptsAreFlagged(t *testing.T) {
	for name, want := range map[string]bool{
		"p\u0430ypal": true, "αbc": true, "payментs": true, "имя": false, "имя-1": false, "東京タワー": false,
		"서울漢": false, "ㄅ漢": false, "東京서울か": true, "weather 2": false, "naïve": false,
	} {
		if got := FlagsOf(name)&MixedScript != 0; got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
}

// Requirement: SEC-015
func TestNamesThatLookAlikeHaveOneSkeleton(t *testing.T) {
	for _, pair := range [][2]string{
		{"paypal", "paypa1"}, {"paypal", "p\u0430ypal"}, {"warning", "waming"}, {"O2", "02"},
		{"bell", "beII"}, {"scope", "ѕсоре"}, {"my agent", "rny agent"},
	} {
		if !Alike(pair[0], pair[1]) {
			t.Errorf("%q and %q look alike", pair[0], pair[1])
		}
	}

	for _, pair := range [][2]string{{"paypal", "paypal"}, {"paypal", "Paypal"}, {"weather", "whether"}, {"a1", "a2"}} {
		if Alike(pair[0], pair[1]) {
			t.Errorf("%q and %q don't look alike", pair[0], pair[1])
		}
	}
}

func TestFlagsAreNamedInOrder(t *testing.T) {
	want := []string{"mixed_script", "confusable", "format"}
	if got := (Format | Confusable | MixedScript).Names(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
