package trust

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/trust/compact"
)

// No mutant of a signed page or record passes, and none makes a reader panic.
//
// Requirement: MESH-004
func TestMutants(t *testing.T) {
	k := newProofKit(t)
	ring, _ := reader(t, k.o)
	_, err := ring.Adopt(alpha, k.o.jws(t))
	must(t, err)
	p := k.proof(t)
	record, _, _ := strings.Cut(p.Record, "~")
	random := rand.New(rand.NewPCG(1, 2))

	tried, each := 0, 3000
	if os.Getenv("STORY_LONG") != "" {
		each = 500_000
	}

	for typ, good := range map[string]string{signed.TypePage: p.Page, signed.TypeRecord: record} {
		if _, _, err := ring.Verify(alpha, typ, good); err != nil {
			t.Fatal(err)
		}

		try := func(mutant []byte) {
			if tried++; string(mutant) == good {
				return
			}

			if payload, _, err := ring.Verify(alpha, typ, string(mutant)); err == nil {
				t.Fatalf("taken: %s\npayload %q", mutant, payload)
			}
		}
		for i := range good {
			for bit := range 8 {
				mutant := []byte(good)
				mutant[i] ^= 1 << bit
				try(mutant)
			}

			try(append([]byte(good[:i]), good[i+1:]...))                            // one byte less
			try([]byte(good[:i]))                                                   // cut short
			try([]byte(good[:i] + string(good[random.IntN(len(good))]) + good[i:])) // one more
		}

		for range each {
			mutant := []byte(good)
			for range 1 + random.IntN(4) {
				const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.\n="
				mutant[random.IntN(len(mutant))] = alphabet[random.IntN(67)]
			}

			try(mutant)
		}
	}

	t.Logf("%d mutants, none taken", tried)

	if tried < 10000 {
		t.Errorf("only %d mutants", tried)
	}
}

// Whoever holds no key of alpha.test makes nothing authentic but what it signed, and
// nothing at all is authentic without an anchor.
//
// Requirement: SEC-017
func FuzzVerify(f *testing.F) {
	k := newProofKit(f)
	p := k.proof(f)
	f.Add(p.Bytes())
	f.Add(k.logged(f, k.proof(f), "alpha.test/roster/1").Bytes())
	f.Add([]byte(p.Record))
	extended := k.proof(f)
	extended.Ext = []byte(`{"note":1}`)
	f.Add(extended.Bytes())
	extended.Crit = []string{"note"}
	f.Add(extended.Bytes())
	now := time.Now()
	keys := k.o.jws(f)
	bundle := k.o.ca.Bundle()

	f.Fuzz(func(t *testing.T, input []byte) {
		for _, opts := range []VerifyOptions{
			{At: now, Bundle: bundle}, {At: now, Keys: keys}, {At: now, Bundle: bundle, Keys: keys}, {At: now},
		} {
			report, err := Verify(input, opts)
			if (ExitCode(err) == 0) != (err == nil) || ExitCode(err) == 1 {
				t.Errorf("exit code %d for %v", ExitCode(err), err)
			}

			if report.Authentic && (report.Anchor == AnchorNone || !genuine(p, input, report.Unchecked)) {
				t.Errorf("a forgery: %s", report)
			}

			if err == nil && !report.Authentic {
				t.Errorf("accepted and not authentic: %s", report)
			}
		}
	})
}

// genuine reports whether the signed parts of a file are those of p, but for what is
// named as unchecked. A bare record may withhold more.
func genuine(p *Proof, file []byte, unchecked []string) bool {
	jws, _, _ := strings.Cut(p.Record, "~")

	got, err := ParseProof(file)
	if err != nil {
		text, _, _ := strings.Cut(strings.TrimSpace(string(file)), "~")
		return text == jws
	}

	return got.Record == p.Record && got.Page == p.Page &&
		(got.Keys == p.Keys || slices.Contains(unchecked, UncheckedKeys))
}

// Whatever is taken apart is put together as it was.
func FuzzCompact(f *testing.F) {
	k := newProofKit(f)
	p := k.proof(f)
	f.Add(p.Page)
	f.Add(p.Keys)
	f.Add(k.o.doc.Keys[0].Attestations[0])
	f.Fuzz(func(t *testing.T, jws string) {
		for _, names := range [][]string{{"alg", "kid", "typ"}, {"alg", "typ", "x5c"}} {
			c, err := compact.Split(jws, compact.MaxSize, names...)
			if err != nil {
				continue
			}

			again := encode(string(strictjson.AppendObject(nil, c.Header))) + "." + encode(string(c.Payload)) + "." +
				encode(string(c.Signature))
			if again != jws {
				t.Errorf("%q is read as %q", jws, again)
			}

			_, _ = chainOf(c)
			_, _ = parseAttestation(c.Payload)
		}
	})
}
