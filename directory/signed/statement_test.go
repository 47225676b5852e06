package signed_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// sample is a document with all that is awkward: escapes, numbers that no float
// holds, inner white space, a name that needs escapes, a name of ours.
const sample = `{"base":"https://agents.example.com/summarizer-v2","n":9007199254740993,"f":1.0e+2,` +
	`"o":{ "b" : 1,"a":[ "\u0041\/" ]},"\u0001\"\\é😀":"\n","owner":"spiffe://evil.test/x"}`

// put returns a change as the golden files have it.
func put(t testing.TB) *signed.Change {
	c := &signed.Change{
		Issuer: alpha, RID: rid(1), Op: signed.OpPut, Epoch: noon, Revision: 381, IssuedAt: noon, Since: noon,
		Leaf: 17, Agent: "summarizer-v2", Owner: mustIdentity(t, "spiffe://alpha.test/agent/ada"),
		Document: mustDocument(t, directory.KindAD, sample),
	}
	for i := range c.Salt {
		c.Salt[i] = byte(i)
	}

	return c
}

func statement(t testing.TB, c *signed.Change) []byte {
	t.Helper()

	b, err := signed.Statement(signed.StatementFormat, c, c.Disclosures())
	must(t, err)

	return b
}

func TestStatementFormat1(t *testing.T) {
	first := put(t)
	golden(t, "statement-1-put-first.json", statement(t, first))

	next := put(t)
	next.Prev = directory.HashOf(statement(t, first))
	next.Revision = 402
	next.IssuedAt = noon + 60
	next.Leaf = 23
	golden(t, "statement-1-put.json", statement(t, next))

	end := &signed.Change{Issuer: alpha, RID: rid(1), Op: signed.OpEnd, Epoch: noon, Revision: 409,
		IssuedAt: noon + 90, Since: noon, Leaf: 29}
	golden(t, "statement-1-end-first.json", statement(t, end))
	end.Prev = directory.HashOf(statement(t, next))
	golden(t, "statement-1-end.json", statement(t, end))

	var texts []string
	for _, d := range first.Disclosures() {
		texts = append(texts, d.Object+" "+d.Text)
	}

	golden(t, "disclosures-1.txt", []byte(strings.Join(texts, "\n")+"\n"))
}

// The salts and hashes of the format, worked out a second time with other code.
//
// Requirement: MESH-003
func TestDisclosuresAreSDJWT(t *testing.T) {
	c := put(t)
	ds := c.Disclosures()

	want := []struct{ object, name, value string }{
		{"reg", "agent", `"summarizer-v2"`}, {"reg", "owner", `"spiffe://alpha.test/agent/ada"`},
		{"reg", "kind", `"ad"`},
		{"doc", "base", `"https://agents.example.com/summarizer-v2"`}, {"doc", "n", `9007199254740993`},
		{"doc", "f", `1.0e+2`},
		{"doc", "o", `{ "b" : 1,"a":[ "\u0041\/" ]}`}, {"doc", "\x01\"\\é😀", `"\n"`},
		{"doc", "owner", `"spiffe://evil.test/x"`},
	}
	if len(ds) != len(want) {
		t.Fatalf("got %d disclosures, want %d", len(ds), len(want))
	}

	sd := map[string][]string{}
	for i, w := range want {
		mac := hmac.New(sha256.New, c.Salt[:])
		mac.Write([]byte("adrec1"))
		mac.Write([]byte{0})
		mac.Write([]byte(w.object))
		mac.Write([]byte{0})
		mac.Write([]byte(w.name))
		salt := base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])

		name := w.name
		if i == 7 {
			name = `\u0001\"\\é😀`
		}

		text := base64.RawURLEncoding.EncodeToString([]byte(`["` + salt + `","` + name + `",` + w.value + `]`))
		if ds[i].Object != w.object || ds[i].Name != w.name || ds[i].Text != text {
			t.Errorf("disclosure %d: got %s, want %s", i, ds[i].Text, text)
		}

		sum := sha256.Sum256([]byte(text))
		sd[w.object] = append(sd[w.object], base64.RawURLEncoding.EncodeToString(sum[:]))
	}

	var payload struct {
		Reg struct {
			SD []string `json:"_sd"`
		} `json:"reg"`
		Doc struct {
			SD []string `json:"_sd"`
		} `json:"doc"`
	}
	must(t, json.Unmarshal(statement(t, c), &payload))

	slices.Sort(sd["reg"])
	slices.Sort(sd["doc"])

	if !slices.Equal(payload.Reg.SD, sd["reg"]) || !slices.Equal(payload.Doc.SD, sd["doc"]) {
		t.Errorf("got %v, want %v", payload, sd)
	}
}

func TestSaltsDiffer(t *testing.T) {
	// The same name and value in both objects, and another registration's.
	a, b := put(t), put(t)
	b.Salt[31]++

	seen := map[string]string{}
	for _, c := range []*signed.Change{a, b} {
		for _, d := range c.Disclosures() {
			raw, err := base64.RawURLEncoding.DecodeString(d.Text)
			must(t, err)

			salt := strings.Split(string(raw), `"`)[1]
			if len(salt) != 22 || seen[salt] != "" {
				t.Errorf("the salt %s of %s %s is no salt, or also that of %s", salt, d.Object, d.Name, seen[salt])
			}

			seen[salt] = d.Object + " " + d.Name

			if strings.Contains(string(raw), base64.RawURLEncoding.EncodeToString(c.Salt[:])) {
				t.Error("a disclosure has the master salt")
			}
		}
	}

	if !slices.EqualFunc(a.Disclosures(), put(t).Disclosures(), func(x, y signed.Disclosure) bool { return x == y }) {
		t.Error("disclosures are not a function of the change")
	}
}

func TestParseStatementReadsWhatStatementWrites(t *testing.T) {
	c := put(t)
	c.Prev = hash("before")

	claims, err := signed.ParseStatement(statement(t, c))
	must(t, err)

	if claims.Issuer != c.Issuer || claims.RID != c.RID || claims.Op != c.Op || claims.Epoch != c.Epoch ||
		claims.Revision != c.Revision ||
		claims.Prev != c.Prev || claims.IssuedAt != c.IssuedAt || claims.Since != c.Since || claims.Leaf != c.Leaf {
		t.Errorf("got %+v", claims)
	}
}

func TestParseStatementRefusesOtherBytes(t *testing.T) {
	good := string(statement(t, put(t)))
	sd := func(object string) string {
		_, rest, _ := strings.Cut(good, `"`+object+`":{"_sd":[`)
		list, _, _ := strings.Cut(rest, "]")

		return list
	}
	first := strings.Split(sd("reg"), ",")[0]

	end := string(statement(t, &signed.Change{Issuer: alpha, RID: rid(1), Op: signed.OpEnd}))
	for name, bad := range map[string]string{
		"nothing":              "",
		"a space":              strings.Replace(good, ":", ": ", 1),
		"trailing data":        good + " ",
		"another order":        strings.Replace(good, `"v":1,"format":1`, `"format":1,"v":1`, 1),
		"another version":      strings.Replace(good, `"v":1`, `"v":2`, 1),
		"an unknown member":    strings.Replace(good, `{"v"`, `{"x":1,"v"`, 1),
		"a member twice":       strings.Replace(good, `"v":1`, `"v":1,"v":1`, 1),
		"a case variant":       strings.Replace(good, `"iss"`, `"Iss"`, 1),
		"a bare issuer":        strings.Replace(good, "spiffe://alpha.test", "alpha.test", 1),
		"an issuer with path":  strings.Replace(good, "spiffe://alpha.test", "spiffe://alpha.test/x", 1),
		"a rid in lower case":  strings.Replace(good, rid(1).String(), strings.ToLower(rid(1).String()), 1),
		"no rid":               strings.Replace(good, `"uid":"`+rid(1).String()+`",`, "", 1),
		"another op":           strings.Replace(good, `"put"`, `"renew"`, 1),
		"an end with members":  strings.Replace(good, `"put"`, `"end"`, 1),
		"a put without":        strings.Replace(end, `"end"`, `"put"`, 1),
		"a number in a string": strings.Replace(good, `"rev":381`, `"rev":"381"`, 1),
		"a float":              strings.Replace(good, `"rev":381`, `"rev":381.0`, 1),
		"an exponent":          strings.Replace(good, `"log":17`, `"log":1e1`, 1),
		"a negative revision":  strings.Replace(good, `"rev":381`, `"rev":-1`, 1),
		"an empty prev":        strings.Replace(good, `"iat"`, `"prev":"",`+`"iat"`, 1),
		"a zero prev":          strings.Replace(good, `"iat"`, `"prev":"`+directory.Hash{}.String()+`","iat"`, 1),
		"an unsorted _sd": strings.Replace(good, sd("reg"),
			strings.Join(reversed(strings.Split(sd("reg"), ",")), ","), 1),
		"a hash twice":   strings.Replace(good, first, first+","+first, 1),
		"a hash in both": strings.Replace(good, sd("doc"), insertSorted(sd("doc"), first), 1),
		"a short hash":   strings.Replace(good, first, first[:42]+`"`, 1),
		"an empty _sd":   strings.Replace(end, `"reg":{}`, `"reg":{"_sd":[]}`, 1),
		"a null _sd":     strings.Replace(end, `"reg":{}`, `"reg":{"_sd":null}`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			if bad == good || bad == end {
				t.Fatal("the case changes nothing")
			}

			if _, err := signed.ParseStatement([]byte(bad)); err == nil {
				t.Errorf("read %s", bad)
			}
		})
	}
}

func reversed(ss []string) []string {
	slices.Reverse(ss)
	return ss
}

func insertSorted(list, text string) string {
	all := append(strings.Split(list, ","), text)
	slices.Sort(all)

	return strings.Join(all, ",")
}

// A statement names a member of its own domain, or none: what else its ext says there is not shown.
//
// Requirement: LOG-020
func TestAStatementNamesAMemberOfItsDomain(t *testing.T) {
	member := spiffeid.RequireFromPath(alpha, "/roster/node/1")

	for ext, want := range map[string]spiffeid.ID{
		"":                                      {},
		`{"later":1}`:                           {},
		`{"from":"` + member.String() + `"}`:    member,
		`{"from":"spiffe://beta.test/agent"}`:   {},
		`{"from":"node"}`:                       {},
		`{"from":{"id":"spiffe://alpha.test"}}`: {},
	} {
		c := put(t)
		if ext != "" {
			var err error
			if c.Extension, err = signed.NewExtension([]byte(ext)); err != nil {
				t.Fatal(err)
			}
		}

		claims, err := signed.ParseStatement(statement(t, c))
		if err != nil || claims.BroughtBy() != want {
			t.Errorf("ext %s: got %q, %v; want %q", ext, claims.BroughtBy(), err, want)
		}
	}

	c := put(t)
	c.Extension = signed.BroughtBy(member)

	if claims, err := signed.ParseStatement(statement(t, c)); err != nil || claims.BroughtBy() != member {
		t.Errorf("got %+v, %v", claims, err)
	}
}
