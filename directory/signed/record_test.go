package signed_test

import (
	"encoding/base64"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

func texts(ds []signed.Disclosure) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = d.Text
	}

	return out
}

// Every choice of six members opens against the same signed bytes, shows just
// these, and gives away nothing of the others.
//
// Requirement: MESH-003
func TestEverySubsetOfARecordOpens(t *testing.T) {
	c := put(t)

	var body []string
	for i := range 6 {
		body = append(body, fmt.Sprintf(`"member%d":"canary-%d"`, i, i))
	}

	c.Document = mustDocument(t, directory.KindAD, "{"+strings.Join(body, ",")+"}")
	payload := statement(t, c)
	all := c.Disclosures()

	names := map[directory.Hash]bool{}
	for subset := range 1 << 6 {
		grant := directory.Grant{Audience: directory.Only(beta), Reg: []string{"agent", "kind"}}

		var want []string
		for i := range 6 {
			if subset&(1<<i) != 0 {
				grant.Doc = append(grant.Doc, fmt.Sprintf("member%d", i))
				want = append(want, body[i])
			}
		}

		shown, m := signed.Disclosed(all, grant)
		text := signed.Record{JWS: "e30." + base64.RawURLEncoding.EncodeToString(payload) + ".AA",
			Disclosures: shown}.String()

		record, err := signed.ParseRecord(text)
		must(t, err)

		got, err := signed.OpenRecord(payload, record.Disclosures)
		if err != nil {
			t.Fatalf("subset %06b: %v", subset, err)
		}

		if string(got.Document.Bytes()) != "{"+strings.Join(want, ",")+"}" || got.Agent != c.Agent ||
			!got.Owner.IsZero() || !got.Redacted {
			t.Errorf("subset %06b: got %s of %s by %q", subset, got.Document.Bytes(), got.Agent, got.Owner)
		}

		if got.H != directory.HashOf(payload) || got.M != m || names[m] {
			t.Errorf("subset %06b: its name is wrong or another's", subset)
		}

		names[m] = true

		everything := string(payload)
		for _, d := range record.Disclosures {
			raw, _ := base64.RawURLEncoding.DecodeString(d)
			everything += string(raw)
		}

		if n := strings.Count(everything, "canary"); n != bits.OnesCount(uint(subset)) {
			t.Errorf("subset %06b: %d values are in the record", subset, n)
		}
	}

	whole, _ := signed.Disclosed(all, directory.Grant{All: true})

	got, err := signed.OpenRecord(payload, whole)
	if err != nil || got.Redacted || got.Owner != c.Owner || got.Document.Kind() != directory.KindAD {
		t.Errorf("the whole record: %+v, %v", got, err)
	}
}

// A withheld value can't be guessed from its hash without its salt.
//
// Requirement: MESH-003
func TestWithheldMembersAreSalted(t *testing.T) {
	a, b := put(t), put(t)
	b.Salt[0]++

	pa, pb := string(statement(t, a)), string(statement(t, b))
	for _, d := range a.Disclosures() {
		h := hash(d.Text).String()
		if !strings.Contains(pa, h) || strings.Contains(pb, h) {
			t.Errorf("%s %s has the same hash under another salt, or none", d.Object, d.Name)
		}
	}
}

func TestOpenRecordKeepsBytes(t *testing.T) {
	c := put(t)

	got, err := signed.OpenRecord(statement(t, c), texts(c.Disclosures()))
	must(t, err)

	if string(got.Document.Bytes()) != string(c.Document.Bytes()) {
		t.Errorf("got %s, want %s", got.Document.Bytes(), c.Document.Bytes())
	}

	// Their member owner is not our owner.
	if got.Owner != c.Owner {
		t.Errorf("owner is %s", got.Owner)
	}
}

func TestRecordText(t *testing.T) {
	c := put(t)
	r := signed.Record{JWS: "e30." + base64.RawURLEncoding.EncodeToString(statement(t, c)) + ".AA",
		Disclosures: texts(c.Disclosures())}
	golden(t, "record.txt", []byte(r.String()))

	back, err := signed.ParseRecord(r.String())
	if err != nil || back.JWS != r.JWS || !slices.Equal(back.Disclosures, r.Disclosures) {
		t.Errorf("got %v, %v", back, err)
	}

	if bare, err := signed.ParseRecord("jws~"); err != nil || len(bare.Disclosures) != 0 || bare.String() != "jws~" {
		t.Errorf("got %v, %v", bare, err)
	}

	for _, bad := range []string{"", "~", "jws", "jws~d", "~d~", "jws~" + strings.Repeat("x", signed.MaxRecord)} {
		if _, err := signed.ParseRecord(bad); err == nil {
			t.Errorf("%.20q was taken for a record", bad)
		}
	}
}

// Whatever is registered has a record that peers can read.
func TestTheLargestDocumentsFitInARecord(t *testing.T) {
	for name, body := range map[string]string{
		"many members": manyMembers(directory.MaxMembers),
		"one member":   `{"x":"` + strings.Repeat("x", directory.MaxDocument-len(`{"x":""}`)) + `"}`,
		"and large": strings.Replace(manyMembers(directory.MaxMembers), "{", `{"x":"`+
			strings.Repeat("x", directory.MaxDocument-len(manyMembers(directory.MaxMembers-1))-20)+`",`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			body = strings.Replace(body, fmt.Sprintf(`,"m%d":%[1]d`, directory.MaxMembers-1), "", 1)
			c := put(t)
			c.Agent = strings.Repeat(`"`, directory.MaxName)
			c.Owner = mustIdentity(t, "oauth:https://issuer.test#"+strings.Repeat(`"`, 2000))
			c.Document = mustDocument(t, directory.KindAD, body)
			jws := strings.Repeat("h", 200) + "." + base64.RawURLEncoding.EncodeToString(statement(t, c)) + "." +
				strings.Repeat("s", 86)

			r := signed.Record{JWS: jws, Disclosures: texts(c.Disclosures())}
			if _, err := signed.ParseRecord(r.String()); err != nil {
				t.Error(err)
			}

			if _, err := signed.OpenRecord(statement(t, c), r.Disclosures); err != nil {
				t.Error(err)
			}
		})
	}
}

// The record gate against what only a hostile origin signs.
//
// Requirement: MESH-003
func TestOpenRecordRefuses(t *testing.T) {
	encode := base64.RawURLEncoding.EncodeToString
	salt := encode(make([]byte, 16))
	agent, kind := disclose("agent", `"a"`), disclose("kind", `"ad"`)
	ours := []string{agent, kind}
	owned := []string{agent, kind, disclose("owner", `"spiffe://alpha.test/agent/ada"`)}

	type attack struct {
		reg, doc []string // in the statement
		shown    []string // nil: all of them
	}
	for name, a := range map[string]attack{
		"no agent":                 {reg: []string{kind}},
		"no kind":                  {reg: []string{agent}},
		"an agent of another type": {reg: []string{disclose("agent", `1`), kind}},
		"an agent with a *":        {reg: []string{disclose("agent", `"a*"`), kind}},
		"an agent not in NFC":      {reg: []string{disclose("agent", `"e\u0301"`), kind}},
		"another's rid as agent":   {reg: []string{disclose("agent", `"`+rid(2).String()+`"`), kind}},
		"two agents":               {reg: []string{agent, disclose("agent", `"b"`), kind}},
		"an owner that is none":    {reg: append(slices.Clone(ours), disclose("owner", `"ada"`))},
		"provenance without owner": {reg: append(slices.Clone(ours),
			disclose("registered_by", `"spiffe://alpha.test/tool"`))},
		"a source with a password": {reg: append(slices.Clone(owned),
			disclose("imported_from", `"https://a:b@c.test/"`))},
		"a source that is none":   {reg: append(slices.Clone(owned), disclose("imported_from", `"c.test"`))},
		"a registrant of no form": {reg: append(slices.Clone(owned), disclose("registrant", `"ada"`))},
		"two registrants": {reg: append(slices.Clone(owned),
			disclose("registrant", `"spiffe://alpha.test/a"`), disclose("registrant", `"spiffe://alpha.test/b"`))},
		"an unknown one, twice":    {reg: append(slices.Clone(ours), disclose("role", `1`), disclose("role", `2`))},
		"an unknown one, no value": {reg: append(slices.Clone(ours), disclose("role", `1,2`))},
		"an unknown one, deep": {reg: append(slices.Clone(ours),
			disclose("role", strings.Repeat("[", 65)+strings.Repeat("]", 65)))},
		"an unknown one, large": {reg: append(slices.Clone(ours),
			disclose("role", `"`+strings.Repeat("x", 2*directory.MaxDocument)+`"`))},
		"_sd in reg":              {reg: append(slices.Clone(ours), disclose("_sd", `[]`))},
		"... in reg":              {reg: append(slices.Clone(ours), disclose("...", `"x"`))},
		"a kind with a space":     {reg: []string{agent, disclose("kind", `"a d"`)}},
		"a name twice":            {reg: ours, doc: []string{disclose("base", `"x"`), disclose("base", `"y"`)}},
		"a name twice within":     {reg: ours, doc: []string{disclose("x", `{"a":1,"a":2}`)}},
		"a reserved member":       {reg: ours, doc: []string{disclose("provenance", `{}`)}},
		"a reserved one, escaped": {reg: ours, doc: []string{disclose(`\u0070rovenance`, `{}`)}},
		"projected":               {reg: ours, doc: []string{disclose("projected", `true`)}},
		"agent in an ad document": {reg: ours, doc: []string{disclose("agent", `"x"`)}},
		"_sd":                     {reg: ours, doc: []string{disclose("_sd", `[]`)}},
		"_sd within":              {reg: ours, doc: []string{disclose("x", `{"y":[{"_sd":[]}]}`)}},
		"... within, escaped":     {reg: ours, doc: []string{disclose("x", `[{"\u002e..":"x"}]`)}},
		"65 deep": {reg: ours,
			doc: []string{disclose("x", strings.Repeat("[", 64)+strings.Repeat("]", 64))}},
		"invalid UTF-8":        {reg: ours, doc: []string{disclose("x", "\"\xff\"")}},
		"a lone surrogate":     {reg: ours, doc: []string{disclose("x", `"\ud800"`)}},
		"a value and a member": {reg: ours, doc: []string{disclose("x", `1,"provenance":{}`)}},
		// {"x":"y,",":":5}
		"values that join": {reg: ours, doc: []string{disclose("x", `"y`), disclose(",", `":5`)}},
		"values that hide one": {reg: ours, doc: []string{disclose("x", `"y`), disclose(",", `","provenance":5`),
			disclose("z", `1`)}},
		"a value that is none": {reg: ours, doc: []string{disclose("x", `nil`)}},
		"a value that goes on": {reg: ours, doc: []string{disclose("x", `1]`)}},
		"no value":             {reg: ours, doc: []string{encode([]byte(`["` + salt + `","x"]`))}},
		"four parts":           {reg: ours, doc: []string{encode([]byte(`["` + salt + `","x",1,2]`))}},
		"no salt":              {reg: ours, doc: []string{encode([]byte(`["","x",1]`))}},
		"a short salt":         {reg: ours, doc: []string{encode([]byte(`["` + salt[:20] + `","x",1]`))}},
		"a salt with a line break": {reg: ours,
			doc: []string{encode([]byte(`["` + salt[:20] + `\n` + salt[20:] + `","x",1]`))}},
		"no array":     {reg: ours, doc: []string{encode([]byte(`{"salt":1}`))}},
		"padding":      {reg: ours, doc: []string{disclose("xx", `1`) + "="}},
		"a line break": {reg: ours, doc: []string{disclose("x", `1`)[:8] + "\n" + disclose("x", `1`)[8:]}},
		"an empty one": {reg: ours, doc: []string{""}},
		"too large": {reg: ours,
			doc: []string{disclose("x", `"`+strings.Repeat("x", directory.MaxDocument)+`"`)}},
		"one twice": {reg: ours, doc: []string{disclose("x", "1")},
			shown: []string{agent, kind, disclose("x", "1"), disclose("x", "1")}},
		"one that isn't signed": {reg: ours, shown: []string{agent, kind, disclose("x", "1")}},
	} {
		t.Run(name, func(t *testing.T) {
			shown := a.shown
			if shown == nil {
				shown = append(slices.Clone(a.reg), a.doc...)
			}

			if _, err := signed.OpenRecord(signedBy(t, a.reg, a.doc), shown); err == nil {
				t.Error("opened")
			}
		})
	}

	// The same builder makes records that open: it is the attacks that fail.
	fine := []string{disclose("x", `{"y":[1]}`)}
	if _, err := signed.OpenRecord(signedBy(t, ours, fine), append(ours, fine...)); err != nil {
		t.Error(err)
	}

	own := []string{disclose("agent", `"`+rid(1).String()+`"`), kind}
	if c, err := signed.OpenRecord(signedBy(t, own, nil), own); err != nil || c.Agent != rid(1).String() {
		t.Errorf("its own rid as agent: %v", err)
	}

	end := statement(t, &signed.Change{Issuer: alpha, RID: rid(1), Op: signed.OpEnd})
	if c, err := signed.OpenRecord(end, nil); err != nil || c.Op != signed.OpEnd {
		t.Errorf("an end statement: %v", err)
	}

	if _, err := signed.OpenRecord(end, []string{agent}); err == nil {
		t.Error("an end statement with a disclosure opened")
	}
}

// disclose returns a disclosure of any text as a value.
func disclose(name, value string) string {
	salt := base64.RawURLEncoding.EncodeToString(make([]byte, 16))
	return base64.RawURLEncoding.EncodeToString([]byte(`["` + salt + `","` + name + `",` + value + `]`))
}

// signedBy returns a statement that holds the hashes of any disclosures.
func signedBy(t testing.TB, reg, doc []string) []byte {
	t.Helper()

	var ds []signed.Disclosure
	for _, text := range reg {
		ds = append(ds, signed.Disclosure{Object: "reg", Text: text})
	}

	for _, text := range doc {
		ds = append(ds, signed.Disclosure{Object: "doc", Text: text})
	}

	b, err := signed.Statement(signed.StatementFormat,
		&signed.Change{Issuer: alpha, RID: rid(1), Op: signed.OpPut, Epoch: noon, Revision: 1}, ds)
	must(t, err)

	return b
}

func TestGrants(t *testing.T) {
	all := put(t).Disclosures()
	if shown, m := signed.Disclosed(all, directory.Grant{All: true}); len(shown) != len(all) ||
		m != signed.HashDisclosures(shown) {
		t.Error("a grant of everything withholds something")
	}

	// m does not depend on the order.
	shown, m := signed.Disclosed(all, directory.Grant{Reg: []string{"agent"}, Doc: []string{"owner", "n"}})
	slices.Reverse(shown)

	if len(shown) != 3 || m != signed.HashDisclosures(shown) {
		t.Errorf("got %d disclosures", len(shown))
	}

	for _, g := range []struct {
		kind  directory.Kind
		grant directory.Grant
		want  bool
	}{
		{directory.KindAD, directory.Grant{All: true}, true},
		{directory.KindAD, directory.Grant{Reg: []string{"agent", "kind"}, Doc: []string{"base"}}, true},
		{directory.KindAD, directory.Grant{Reg: []string{"agent"}, Doc: []string{"base"}}, false},
		{directory.KindAD, directory.Grant{Reg: []string{"agent", "kind"}}, false},
		{directory.KindA2A, directory.Grant{Reg: []string{"agent", "kind"}, Doc: []string{"url"}}, false},
		{directory.KindA2A, directory.Grant{Reg: []string{"agent", "kind"},
			Doc: []string{"url", "name", "supportedInterfaces"}}, true},
		{directory.KindWoA, directory.Grant{Reg: []string{"agent", "kind"}, Doc: []string{"woa_version", "agents"}},
			false},
		{directory.KindOASF, directory.Grant{Reg: []string{"agent", "kind"},
			Doc: []string{"name", "modules", "extensions", "locators"}}, true},
		{directory.KindMCP, directory.Grant{Reg: []string{"agent", "kind"}, Doc: []string{"name"}}, false},
		{directory.KindMCP, directory.Grant{Reg: []string{"agent", "kind"},
			Doc: []string{"name", "remotes", "packages", "repository"}}, true},
	} {
		if g.grant.Complete(g.kind) != g.want {
			t.Errorf("%s %+v: complete is %v", g.kind, g.grant, !g.want)
		}
	}
}
