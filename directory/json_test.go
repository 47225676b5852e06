package directory_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// Requirement: AD-046, AD-049
func TestParseObjectIsStrict(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for name, body := range map[string]string{
		"empty":                      ``,
		"white space alone":          "  \n",
		"null":                       `null`,
		"an array":                   `[{}]`,
		"a string":                   `"x"`,
		"a number":                   `1`,
		"cut off":                    `{"a":1`,
		"trailing data":              `{} x`,
		"a second object":            `{}{}`,
		"a trailing comma":           `{"a":1,}`,
		"a comment":                  `{/* */}`,
		"single quotes":              `{'a':1}`,
		"a name twice":               `{"a":1,"b":2,"a":3}`,
		"a name twice, escaped":      `{"a":1,"\u0061":3}`,
		"a name twice, at depth":     `{"x":[{"y":{"a":1,"a":1}}]}`,
		"a name twice, deep escaped": `{"x":{"\u0061":1,"a":1}}`,
		"invalid UTF-8":              "{\"a\":\"\xff\"}",
		"overlong UTF-8":             "{\"a\":\"\xc0\xaf\"}",
		"invalid UTF-8 in a name":    "{\"\xff\":1}",
		"a byte order mark":          "\xef\xbb\xbf{}",
		"UTF-16":                     "\xff\xfe{\x00}\x00",
		"a lone high surrogate":      `{"a":"\ud800"}`,
		"a lone low surrogate":       `{"a":"\udc00"}`,
		"surrogates reversed":        `{"a":"\udc00\ud800"}`,
		"a lone surrogate in a name": `{"\ud800":1}`,
		"a raw control character":    "{\"a\":\"\x01\"}",
		"a leading zero":             `{"a":01}`,
		"NaN":                        `{"a":NaN}`,
		"65 deep":                    deep(65),
		"65 deep in arrays":          `{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		"100,000 deep":               `{"a":` + strings.Repeat("[", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := directory.ParseObject([]byte(body))
			if directory.ProblemOf(err) != directory.BadRequest {
				t.Errorf("got %v, want a bad request", err)
			}
		})
	}

	for name, body := range map[string]string{
		"64 deep":                       deep(64),
		"brackets in strings":           `{"a":"` + strings.Repeat("[", 100) + `\"[["}`,
		"names that differ in case":     `{"a":1,"A":2}`,
		"names that differ in the form": "{\"\u00e9\":1,\"e\u0301\":2}",
		"a pair of surrogates":          `{"a":"\ud83d\ude00"}`,
		"white space":                   " {\t\"a\" : 1 } \r\n",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := directory.ParseObject([]byte(body)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestJSONThatEndsTooEarlyIsRefusedWithItsLength(t *testing.T) {
	for body, want := range map[string]string{
		`{ `:       "the JSON ends too early, at byte 2",
		`{"a":[1,`: "the JSON ends too early, at byte 8",
		`[{}`:      "the JSON ends too early, at byte 3",
	} {
		if _, err := strictjson.ParseObject([]byte(body)); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
}

func TestErrorsHaveNoFullStopBeforeThePointer(t *testing.T) {
	err := directory.Refuse(directory.BadRequest, "id must be a rid, got \"foo\".").At("/id")
	if got, want := err.Error(), `id must be a rid, got "foo" (at /id)`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestParseObjectKeepsOrderAndBytes(t *testing.T) {
	members, err := directory.ParseObject([]byte("{ \"z\" : [ 1.0e2,  \"\\u0041\" ] ,\"a\":\t{ \"q\":1 }}"))
	must(t, err)

	want := []strictjson.Member{{Name: "z", Value: []byte(`[ 1.0e2,  "\u0041" ]`)},
		{Name: "a", Value: []byte(`{ "q":1 }`)}}

	if len(members) != 2 {
		t.Fatalf("got %v", members)
	}

	for i, m := range members {
		if m.Name != want[i].Name || string(m.Value) != string(want[i].Value) {
			t.Errorf("got %s: %s, want %s: %s", m.Name, m.Value, want[i].Name, want[i].Value)
		}
	}
}

func TestAppendStringEscapesOnlyWhatJSONDemands(t *testing.T) {
	got := string(strictjson.AppendString(nil, "a\"\\/\x00\n\x1f\x7f\u2028é😀<>&"))
	if want := `"a\"\\/\u0000\u000a\u001f` + "\x7f\u2028é😀<>&" + `"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestHashHasOneText(t *testing.T) {
	h := hash("x")
	if back, err := directory.ParseHash(h.String()); err != nil || back != h {
		t.Errorf("got %v, %v", back, err)
	}

	text := h.String()

	last := text[len(text)-1]
	for _, bad := range []string{"", text + "=", text + "A", text[:42], text[:20] + "\n" + text[20:],
		text[:42] + string(last+1), strings.ToUpper(text)[:41] + "+/"} {
		if _, err := directory.ParseHash(bad); err == nil {
			t.Errorf("%q was taken for a hash", bad)
		}
	}
}

// Strings are looked at eight bytes at once: each byte is escaped, or not,
// wherever it stands.
func TestAppendStringWhereverAByteStands(t *testing.T) {
	for c := range 128 {
		for at := range 20 {
			s := strings.Repeat("a", at) + string(rune(c)) + strings.Repeat("é", 9)
			got := strictjson.AppendString(nil, s)

			escaped := c < 0x20 || c == '"' || c == '\\'
			if back, err := jsontext.AppendUnquote(nil, got); err != nil || string(back) != s ||
				(len(got) > len(s)+2) != escaped {
				t.Errorf("%q is written as %s (%v)", s, got, err)
			}
		}
	}
}
