package directory_test

import (
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// Requirement: AD-009, AD-027
func TestParseName(t *testing.T) {
	for in, want := range map[string]string{
		"summarizer-v2":                         "summarizer-v2",
		"e\u0301t\u00e9":                        "\u00e9t\u00e9",
		"a/b c?#%":                              "a/b c?#%",
		strings.Repeat("x", 255):                strings.Repeat("x", 255),
		"01JWNTC0000000000000000A":              "01JWNTC0000000000000000A",
		"81JWNTC0000000000000000AD1"[:25] + "U": "81JWNTC0000000000000000ADU", // U is no digit of a ULID
	} {
		if got, err := directory.ParseName(in); got != want || err != nil {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
	}

	for name, in := range map[string]string{
		"nothing":                           "",
		"256 bytes":                         strings.Repeat("x", 256),
		"not UTF-8":                         "a\xff",
		"a control character":               "a\nb",
		"DEL":                               "a\x7f",
		"a C1 control character":            "a\u0085",
		"an asterisk":                       "a*",
		"a ULID":                            "01JWNTC0000000000000000AD1",
		"a ULID in lower case":              "01jwntc0000000000000000ad1",
		"a ULID whose K is the Kelvin sign": "01JWNTC0000000000000000AD\u212a",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := directory.ParseName(in)
			wantRefusal(t, err, directory.BadName, "")
		})
	}
}

func TestRIDHasOneText(t *testing.T) {
	r := rid(7)
	if back, err := directory.ParseRID(r.String()); err != nil || back != r {
		t.Errorf("got %v, %v", back, err)
	}

	for _, bad := range []string{"", strings.ToLower(r.String()), r.String() + "0", r.String()[1:],
		"8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "01JWNTC0000000000000000ADU"} {
		if _, err := directory.ParseRID(bad); err == nil {
			t.Errorf("%q was taken for a rid", bad)
		}
	}

	if rid(1).Compare(rid(2)) >= 0 || !(directory.RID{}).IsZero() || r.IsZero() {
		t.Error("rids are out of order")
	}
}

func TestVisibility(t *testing.T) {
	for in, want := range map[string]string{
		"domain": "domain", "mesh": "mesh", "peers:beta.test": "peers:beta.test",
		"peers:gamma.test,beta.test,gamma.test": "peers:beta.test,gamma.test",
	} {
		var v directory.Visibility
		if err := v.UnmarshalText([]byte(in)); err != nil || v.String() != want {
			t.Errorf("%q: got %q, %v", in, v, err)
		}
	}

	// A peer called mesh would make everybody of one.
	for _, in := range []string{"", "Mesh", "peers:", "peers:a,,b", "peers:mesh", "peers:BETA.test",
		"peers:spiffe://beta.test", "all"} {
		_, err := directory.ParseVisibility(in)
		wantRefusal(t, err, directory.BadRequest, "")
	}
}

func TestAudience(t *testing.T) {
	if a := directory.Only(spiffeid.RequireTrustDomainFromString("mesh")); a == directory.Mesh || a.String() != "" {
		t.Error("a domain called mesh is the audience of all")
	}

	for _, in := range []string{"mesh", "beta.test"} {
		if a, err := directory.ParseAudience(in); err != nil || a.String() != in {
			t.Errorf("%q: got %v, %v", in, a, err)
		}
	}

	for _, in := range []string{"", "BETA", "spiffe://beta.test", "beta.test/x", "MESH"} {
		if _, err := directory.ParseAudience(in); err == nil {
			t.Errorf("%q was taken for an audience", in)
		}
	}
}

func TestParseIdentity(t *testing.T) {
	for _, in := range []string{
		"spiffe://alpha.test/agent/ada", "spiffe://alpha.test", "wimse://alpha.test/agent/ada",
		"oauth:https://issuer.test#subject", "oauth:https://issuer.test#a#b",
	} {
		id := mustIdentity(t, in)
		text, _ := id.MarshalText()

		var back directory.Identity
		if err := back.UnmarshalText(text); err != nil || back != id || id.String() != in {
			t.Errorf("%q: got %q, %v", in, back, err)
		}
	}

	if mustIdentity(t, "spiffe://alpha.test/x") == mustIdentity(t, "wimse://alpha.test/x") {
		t.Error("two schemes name one identity")
	}

	if _, ok := mustIdentity(t, "wimse://alpha.test/x").SPIFFE(); ok {
		t.Error("a WIMSE identifier passes for a SPIFFE ID")
	}

	for _, in := range []string{
		"", "alpha.test/x", "SPIFFE://alpha.test/x", "spiffe://ALPHA.test/x", "spiffe://alpha.test/",
		"spiffe://alpha.test/a//b",
		"spiffe://alpha.test/../x", "spiffe://alpha.test:80/x", "spiffe://alpha.test/x?y", "https://alpha.test/x",
		"oauth:#x",
		"oauth:x#", "oauth:x", "oauth:x#a\nb", "oauth:x#\xff", "spiffe://alpha.test/" + strings.Repeat("x", 2048),
	} {
		if id, err := directory.ParseIdentity(in); err == nil || !id.IsZero() {
			t.Errorf("%q was taken for an identity", in)
		}
	}
}

func TestParseIndex(t *testing.T) {
	td, p, err := directory.ParseIndex("alpha.test=1780315200.381")
	if err != nil || td != alpha || p != (directory.Position{Epoch: noon, Revision: 381}) {
		t.Errorf("got %v %v, %v", td, p, err)
	}

	if s := directory.FormatIndex(td, p); s != "alpha.test=1780315200.381" {
		t.Errorf("got %s", s)
	}

	for _, in := range []string{"", "alpha.test", "alpha.test=1", "alpha.test=1.", "=1.2", "alpha.test=-1.2",
		"alpha.test=1.2.3", "a=1.99999999999999999999"} {
		_, _, err := directory.ParseIndex(in)
		wantRefusal(t, err, directory.BadQuery, "")
	}

	if !p.Before(directory.Position{Epoch: noon + 1}) || !p.Before(directory.Position{Epoch: noon, Revision: 382}) ||
		p.Before(p) {
		t.Error("positions are out of order")
	}
}
