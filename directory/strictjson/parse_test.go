package strictjson

import (
	"bytes"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
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

// SplitObject, SplitArray and Unquote agree with the library for all texts that ParseObject takes, and fail
// for no others.
func FuzzSplit(f *testing.F) {
	for _, body := range []string{
		`{}`, `{ }`, `{"a":1}`, ` {"a" : [ ] , "b":{"c":"]}\"\\"}}`, `{"":"","\u0061\n":"\ud83d\ude00"}`,
		`{"a":[1,"x",[{}],{"b":[]},-1.5e3,null,true]}`, "{\"a\":\"\u00e4\"}",
		`{"a":"\`, `[`, `"`, `{"a"`, `"\`, `{"a":1,}`,
	} {
		f.Add([]byte(body))
	}

	f.Fuzz(func(t *testing.T, body []byte) {
		split, parts, _ := SplitObject(body), SplitArray(body), Unquote(body)

		if len(split) > len(body) || len(parts) > len(body) {
			t.Errorf("%q has %d members and %d elements", body, len(split), len(parts))
		}

		parsed, err := ParseObject(body)
		if err != nil {
			return
		}

		body = bytes.TrimSpace(body)

		same := func(a, b Member) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) }
		if split := SplitObject(body); !slices.EqualFunc(split, parsed, same) {
			t.Errorf("%q is split into %q, want %q", body, split, parsed)
		}

		array := slices.Concat([]byte("[ "), body, []byte(",0 , "), body, []byte("]"))
		if parts := SplitArray(array); len(parts) != 3 || !bytes.Equal(parts[0], body) || string(parts[1]) != "0" ||
			!bytes.Equal(parts[2], body) {
			t.Errorf("an array of %q is split into %q", body, parts)
		}

		for _, member := range parsed {
			var want any
			if err := json.Unmarshal(member.Value, &want); err != nil {
				t.Fatal(err)
			}

			switch want := want.(type) {
			case string:
				if got := Unquote(member.Value); got != want {
					t.Errorf("%q is %q, want %q", member.Value, got, want)
				}
			case []any:
				if got := len(SplitArray(member.Value)); got != len(want) {
					t.Errorf("%q has %d elements, want %d", member.Value, got, len(want))
				}
			}
		}
	})
}
