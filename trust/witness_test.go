package trust

import (
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
)

const ledgerOrigin = "alpha.test/roster/1"

// witnessKey is the key of the witness of a name, the same each time.
func witnessKey(name string) ed25519.PrivateKey {
	seed := directory.HashOf([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func vkeyOf(name string, kind byte, key ed25519.PublicKey) string {
	return checkpoint.VerifierKey{Name: name, Type: kind, Key: key}.String()
}

// witnessed is a logged proof whose checkpoint witnesses cosigned at a time.
func (k *proofKit) witnessed(t testing.TB, at time.Time, witnesses ...string) *Proof {
	t.Helper()

	p := k.logged(t, k.proof(t), ledgerOrigin)
	note, err := checkpoint.Parse(p.Checkpoint)
	must(t, err)

	for _, name := range witnesses {
		p.Checkpoint += checkpoint.Cosign(note, name, witnessKey(name), at)
	}

	return p
}

// policyOf is a policy that believes the key of a log, and any two of three witnesses.
func policyOf(t testing.TB, log ed25519.PublicKey, quorum string) *checkpoint.Policy {
	t.Helper()

	text := "log " + vkeyOf(ledgerOrigin, checkpoint.TypeLog, log) + "\n"
	for _, name := range []string{"beta.test/w", "gamma.test/w", "delta.test/w"} {
		key := vkeyOf(name, checkpoint.TypeWitness, witnessKey(name).Public().(ed25519.PublicKey))
		text += "witness " + name + " " + key + "\n"
	}

	text += "group two 2 beta.test/w gamma.test/w delta.test/w\nquorum " + quorum + "\n"
	policy, err := checkpoint.ParsePolicy(text)
	must(t, err)

	return policy
}

// Requirement: LOG-014
func TestWitnessesAreJudgedByThePolicy(t *testing.T) {
	k := newProofKit(t)
	at := time.Unix(k.made.Unix(), 0).UTC()
	broken := k.witnessed(t, at, "beta.test/w", "gamma.test/w")
	broken.Checkpoint = strings.Replace(broken.Checkpoint, ledgerOrigin+"\n10\n", ledgerOrigin+"\n11\n", 1)

	stranger, err := OpenKey(t.TempDir())
	must(t, err)

	forged := k.witnessed(t, at, "beta.test/w", "gamma.test/w")
	note, err := checkpoint.Parse(forged.Checkpoint)
	must(t, err)

	note.Signatures[2].Bytes[40] ^= 1
	forged.Checkpoint = note.String()

	for _, row := range []struct {
		name   string
		proof  *Proof
		policy *checkpoint.Policy
		err    error
		detail string
		found  int // witnesses
	}{
		{"two of three", k.witnessed(t, at, "beta.test/w", "gamma.test/w"), policyOf(t, k.o.key.Public(), "two"), nil,
			"cosigned by beta.test/w at ", 2},
		{"one of three", k.witnessed(t, at, "beta.test/w"), policyOf(t, k.o.key.Public(), "two"), ErrWitness,
			"cosignatures of 1 of its 3 witnesses", 1},
		{"strangers", k.witnessed(t, at, "x", "y"), policyOf(t, k.o.key.Public(), "two"), ErrWitness,
			"of 0 of its 3", 0},
		{"no quorum asked for", k.witnessed(t, at, "beta.test/w"), policyOf(t, k.o.key.Public(), "none"), nil,
			"asks for none", 1},
		{"not logged", k.proof(t), policyOf(t, k.o.key.Public(), "two"), ErrWitness, "no checkpoint", 0},
		{"not logged, no quorum", k.proof(t), policyOf(t, k.o.key.Public(), "none"), ErrWitness, "no checkpoint", 0},
		{"a log that the policy doesn't list", k.witnessed(t, at, "beta.test/w", "gamma.test/w"),
			policyOf(t, stranger.Public(), "two"), ErrInclusion, "none of the policy's logs", 0},
		{"a forged cosignature", forged, policyOf(t, k.o.key.Public(), "none"), ErrWitness, "invalid signature", 0},
		{"another tree", broken, policyOf(t, k.o.key.Public(), "two"), ErrInclusion, "", 0},
	} {
		report, err := Verify(row.proof.Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle(), Policy: row.policy})
		if !errors.Is(err, row.err) || (err == nil) != (row.err == nil) || row.err != nil && ExitCode(err) != 13 {
			t.Errorf("%s: %v, exit code %d", row.name, err, ExitCode(err))
		}

		last := report.Steps[len(report.Steps)-1]
		if !strings.Contains(last.Detail, row.detail) || last.Name != "witnesses" ||
			len(report.Witnesses) != row.found ||
			report.Witnessed != (row.name == "two of three") || report.Authentic != (row.err == nil) {
			t.Errorf("%s: %+v", row.name, report)
		}

		for _, w := range report.Witnesses {
			if !w.At.Equal(at) {
				t.Errorf("%s: %s at %s, want %s", row.name, w.Name, w.At, at)
			}
		}
	}

	report, err := Verify(k.witnessed(t, at, "beta.test/w").Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle()})
	if err != nil || report.Witnessed || !report.Logged || *report.Log != (LogEntry{ledgerOrigin, 3, 10}) ||
		!slices.Contains(report.Unchecked, UncheckedSignatures) {
		t.Errorf("without a policy: %v, %+v", err, report)
	}
}

// Each byte of a cosignature that the policy asks for counts.
//
// Requirement: LOG-014
func TestEveryByteOfACosignatureIsChecked(t *testing.T) {
	k := newProofKit(t)
	p := k.witnessed(t, time.Now(), "beta.test/w")
	opts := VerifyOptions{At: time.Now(), Bundle: k.o.ca.Bundle(), Policy: policyOf(t, k.o.key.Public(), "beta.test/w")}

	if report, err := Verify(p.Bytes(), opts); err != nil || !report.Witnessed || !slices.Equal(report.Unchecked,
		[]string{UncheckedBundle}) {
		t.Fatalf("%v, %+v", err, report)
	}

	for i := 0; i < len(p.Checkpoint); i += sampleStep() {
		for _, flip := range []byte{0x01, 0x02, 0x20} {
			changed := *p
			text := []byte(p.Checkpoint)

			text[i] ^= flip
			if !utf8.Valid(text) {
				continue // JSON can't hold it
			}

			changed.Checkpoint = string(text)

			if _, err := Verify(encodeCompact(&changed), opts); err == nil {
				t.Fatalf("byte %d ^ %#x is taken:\n%s", i, flip, text)
			}
		}
	}
}

// A C2SP tlog-proof beside a file without an inclusion proof shows where it is logged.
//
// Requirement: LOG-011
func TestTlogProofBesideAFile(t *testing.T) {
	k := newProofKit(t)
	logged := k.witnessed(t, time.Now(), "beta.test/w")
	inclusion := checkpoint.FormatProof(checkpoint.Proof{Index: *logged.Index, Path: logged.Path,
		Checkpoint: logged.Checkpoint})
	policy := policyOf(t, k.o.key.Public(), "beta.test/w")

	for name, input := range map[string][]byte{"proof": k.proof(t).Bytes(), "record": []byte(logged.Record)} {
		opts := VerifyOptions{Bundle: k.o.ca.Bundle(), Keys: logged.Keys, Policy: policy, Inclusion: inclusion}
		if report, err := Verify(input, opts); err != nil || !report.Logged || !report.Witnessed {
			t.Errorf("%s: %v, %+v", name, err, report)
		}

		opts.Inclusion = strings.Replace(inclusion, "index 3\n", "index 4\n", 1)
		if _, err := Verify(input, opts); !errors.Is(err, ErrInclusion) {
			t.Errorf("%s with another index: %v", name, err)
		}

		opts.Inclusion = "c2sp.org/tlog-proof@v2"
		if _, err := Verify(input, opts); !errors.Is(err, ErrFormat) || ExitCode(err) != 10 {
			t.Errorf("%s with what is no tlog-proof: %v", name, err)
		}
	}

	both := VerifyOptions{Bundle: k.o.ca.Bundle(), Inclusion: inclusion}
	if _, err := Verify(logged.Bytes(), both); !errors.Is(err, ErrFormat) {
		t.Errorf("two inclusion proofs: %v", err)
	}
}

// staple is the proof of the kit's registration as it travels with its agent.
func (k *proofKit) staple(t testing.TB) *Proof {
	t.Helper()

	k.page.From, k.page.To = 6, 7
	p := k.proof(t)
	p.Attestation = k.o.signingKey(t).Attestations[0]
	p.Keys, p.Bundle = "", nil

	return p
}

// Requirement: LOG-025
func TestStapleIsFreshForHalfAnHour(t *testing.T) {
	k := newProofKit(t)
	p := k.staple(t)
	now := time.Unix(k.made.Unix(), 0)
	bundle := k.o.ca.Bundle()

	if size := len(encodeCompact(p)); size > MaxStaple {
		t.Errorf("the staple has %d bytes", size)
	}

	verify := func(after time.Duration) (*Report, error) {
		return Verify(p.Bytes(), VerifyOptions{Bundle: bundle, Staple: true, At: now.Add(after)})
	}

	for _, after := range []time.Duration{0, -MaxClockSkew, StapleLifetime - time.Second} {
		if report, err := verify(after); err != nil || !report.Authentic || len(report.Unchecked) > 0 {
			t.Errorf("after %s: %v\n%s", after, err, report)
		}
	}

	early := -MaxClockSkew - time.Second
	for after, want := range map[time.Duration]error{StapleLifetime: ErrExpired, early: ErrFormat} {
		if _, err := verify(after); !errors.Is(err, want) {
			t.Errorf("after %s: %v", after, err)
		}
	}

	k.page.Digests[0].Deadline = now.Unix() + 60
	p = k.staple(t)

	if _, err := verify(time.Minute); !errors.Is(err, ErrExpired) || ExitCode(err) != 14 {
		t.Errorf("after its deadline: %v", err)
	}
}

// Requirement: LOG-025
func TestStaplesThatAreRefused(t *testing.T) {
	k := newProofKit(t)
	stranger := newOrigin(t, alpha)
	thief, err := OpenKey(t.TempDir())
	must(t, err)

	for _, row := range []struct {
		name, step string
		change     func(p *Proof)
		err        error
		code       int
	}{
		{"a page of more", "page", func(p *Proof) {
			k.page.From = 5
			p.Page = k.proof(t).Page
		}, ErrFormat, 10},
		{"a page that goes on", "page", func(p *Proof) {
			k.page.To = 8
			p.Page = k.proof(t).Page
		}, ErrFormat, 10},
		{"keys and an attestation", "format", func(p *Proof) { p.Keys = k.o.jws(t) }, ErrFormat, 10},
		{"neither", "format", func(p *Proof) { p.Attestation = "" }, ErrFormat, 10},
		{"a bundle beside the attestation", "format", func(p *Proof) { p.Bundle = k.proof(t).Bundle }, ErrFormat, 10},
		{"too long", "format", func(p *Proof) { p.Ext = []byte(`{"a":"` + strings.Repeat("x", MaxStaple) + `"}`) },
			ErrFormat, 10},
		{"no attestation at all", "format", func(p *Proof) { p.Attestation = p.Page }, ErrFormat, 10},
		{"attested under another authority", "key attestation", func(p *Proof) {
			p.Attestation, err = k.o.key.Attest(stranger.svid, time.Now())
			must(t, err)
		}, ErrKey, 12},
		{"another key's attestation", "page signature", func(p *Proof) {
			p.Attestation, err = thief.Attest(k.o.svid, time.Now())
			must(t, err)
		}, ErrKey, 12},
		{"a page by another key", "page signature", func(p *Proof) {
			p.Page, err = thief.sign("adpage+jws", k.page.Payload())
			must(t, err)
		}, ErrKey, 12},
	} {
		p := k.staple(t)
		row.change(p)

		_, err := Verify(encodeCompact(p), VerifyOptions{Bundle: k.o.ca.Bundle(), Staple: true})
		step := (*StepError)(nil)

		if !errors.As(err, &step) || step.Step != row.step || !errors.Is(err, row.err) || ExitCode(err) != row.code {
			t.Errorf("%s: %v, exit code %d", row.name, err, ExitCode(err))
		}
	}

	record := []byte(k.proof(t).Record)
	if _, err := Verify(record, VerifyOptions{Keys: k.o.jws(t), Staple: true}); !errors.Is(err, ErrFormat) {
		t.Errorf("a bare record: %v", err)
	}

	// Without --staple it is a proof file like others, and a pinned key document replaces
	// what attests its key.
	report, err := Verify(k.staple(t).Bytes(), VerifyOptions{Keys: k.o.jws(t), At: time.Now().Add(time.Hour)})
	if err != nil || !slices.Equal(report.Unchecked, []string{UncheckedAttestation}) {
		t.Errorf("by pinned keys: %v, %+v", err, report)
	}
}

// Requirement: LOG-025
func TestEveryByteOfAStapleIsChecked(t *testing.T) {
	k := newProofKit(t)
	file := encodeCompact(k.staple(t))
	opts := VerifyOptions{At: time.Now(), Bundle: k.o.ca.Bundle(), Staple: true}

	if report, err := Verify(file, opts); err != nil {
		t.Fatalf("%v\n%s", err, report)
	}

	for i := 0; i < len(file); i += sampleStep() {
		for _, flip := range flips(0x01) {
			mutant := slices.Clone(file)
			mutant[i] ^= flip

			if report, err := Verify(mutant, opts); err == nil {
				t.Fatalf("byte %d ^ %#x is taken, unchecked %q:\n%s", i, flip, report.Unchecked, mutant)
			}
		}
	}
}
