package strictjson

import (
	"bytes"
	"slices"
	"testing"
)

// IsObjectOf agrees with ParseObject for all texts and members.
func FuzzIsObjectOf(f *testing.F) {
	for _, body := range []string{`{}`, `{"a":1}`, `{"a":1,"b":[2,{"c":null}]}`, `{"a":1,"a":2}`, `{"a":1}x`, `{"a":1`,
		`{"a" : 1}`, `["a"]`, `{"\u0061":1}`, `{"a":"` + "\xff" + `"}`, ``, `{"a":1,}`} {
		for _, value := range []string{`1`, `2`, `[2,{"c":null}]`, `1,"b":2`} {
			f.Add([]byte(body), "a", []byte(value), "b", []byte(value))
		}
	}

	f.Fuzz(func(t *testing.T, body []byte, name1 string, value1 []byte, name2 string, value2 []byte) {
		for _, members := range [][]Member{nil, {{name1, value1}}, {{name1, value1}, {name2, value2}}} {
			for _, text := range [][]byte{body, AppendObject(nil, members)} {
				parsed, err := ParseObject(text)
				same := err == nil && slices.EqualFunc(parsed, members, func(a, b Member) bool {
					return a.Name == b.Name && bytes.Equal(a.Value, b.Value)
				})

				if IsObjectOf(text, members) != same {
					t.Errorf("%q has the members %q: %v", text, members, same)
				}
			}
		}
	})
}
