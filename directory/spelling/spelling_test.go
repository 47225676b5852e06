package spelling

import "testing"

func TestIsNear(t *testing.T) {
	for _, c := range []struct {
		name, known string
		near        bool
	}{
		{"protcols", "protocols", true},
		{"protocolss", "protocols", true},
		{"protokols", "protocols", true},
		{"agnet", "agent", true},
		{"Agent", "agent", true},
		{"tag", "tags", true},
		{"inputSchema", "input_schema", true},
		{"cap-name", "cap_name", true},
		{"agent", "agent", false},
		{"protools", "protocols", true},
		{"prtcols", "protocols", false},
		{"lt", "l", false},
		{"it", "lt", false},
		{"", "tag", false},
		{"tag", "___", false},
		{"base", "name", false},
		{"abcd", "badc", false},
	} {
		if got := IsNear(c.name, c.known); got != c.near {
			t.Errorf("%q and %q: near is %t", c.name, c.known, got)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"since", "who", "what", "after", "limit", "follow"}
	for name, want := range map[string]string{
		"sicne": "since", "hwo": "who", "limits": "limit", "folow": "follow", "followme": "follow", "xyz": "", "w": "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for pair, want := range map[[2]string]int{
		{"", ""}: 0, {"abc", ""}: 3, {"", "ab"}: 2, {"kitten", "sitting"}: 3, {"ab", "ba"}: 1, {"abcd", "badc"}: 2,
	} {
		if got := distance(pair[0], pair[1]); got != want {
			t.Errorf("%q: %d, want %d", pair, got, want)
		}
	}
}
