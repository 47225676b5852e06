package trust

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
)

// Whoever forges a proof under a CA of the same name makes a file that agrees with
// itself, and no verifier calls it authentic.
//
// Requirement: SEC-017
func TestAForgedProofIsNotAuthentic(t *testing.T) {
	forger, genuine := newProofKit(t), newProofKit(t)
	proof := forger.logged(t, forger.proof(t), "alpha.test/roster/1")
	files := map[string][]byte{"proof": proof.Bytes(), "record": []byte(proof.Record)}

	anchors := map[string]VerifyOptions{
		"none":                     {},
		"genuine bundle":           {Bundle: genuine.o.ca.Bundle()},
		"genuine keys":             {Keys: genuine.o.jws(t)},
		"genuine bundle and keys":  {Bundle: genuine.o.ca.Bundle(), Keys: genuine.o.jws(t)},
		"genuine bundle, its keys": {Bundle: genuine.o.ca.Bundle(), Keys: proof.Keys},
	}
	for file, input := range files {
		for name, opts := range anchors {
			report, err := Verify(input, opts)
			if ExitCode(err) != 12 || report.Authentic {
				t.Errorf("%s by %s: exit code %d, %v\n%s", file, name, ExitCode(err), err, report)
			}

			if name == "none" && (report.Anchor != AnchorNone || !errors.Is(err, ErrNoAnchor) ||
				!strings.Contains(report.String(),
					"the file's own bundle shows only that the file agrees with itself")) {
				t.Errorf("%s: %v\n%s", file, err, report)
			}
		}
	}
}

// Without an anchor no step behind it is shown as passed.
//
// Requirement: SEC-017
func TestWhatWasNotCheckedIsNotShownAsPassed(t *testing.T) {
	k := newProofKit(t)
	for name, input := range map[string][]byte{"proof": k.proof(t).Bytes(), "record": []byte(k.proof(t).Record)} {
		report, _ := Verify(input, VerifyOptions{})
		for i, s := range report.Steps {
			if s.OK && i >= 2 {
				t.Errorf("%s: %+v", name, s)
			}
		}

		text, err := json.Marshal(report)
		must(t, err)

		for _, want := range []string{`"authentic":false`, `"anchor":"none"`} {
			if !bytes.Contains(text, []byte(want)) {
				t.Errorf("%s: no %s in %s", name, want, text)
			}
		}
	}

	report, err := Verify(k.proof(t).Bytes(), VerifyOptions{Keys: k.o.jws(t)})
	must(t, err)

	if s := report.Steps[3]; s.Name != "key attestation" || s.OK || !s.Skipped {
		t.Errorf("pinned keys show %+v", s)
	}
}

// Each anchor verifies, and the result names it and what of the file was not used.
//
// Requirement: SEC-017
func TestTheResultNamesItsAnchor(t *testing.T) {
	k := newProofKit(t)
	certs, _ := k.o.ca.PEM()
	bundle, err := ParseBundle(spiffeid.TrustDomain{}, certs)
	must(t, err)
	stranger := newOrigin(t, beta).ca.Bundle()
	keys := k.o.jws(t)
	k.o.issue(t, 2, k.o.signingKey(t)) // the file's key document is a later one
	proof := k.logged(t, k.proof(t), "alpha.test/roster/1").Bytes()

	for _, row := range []struct {
		name      string
		opts      VerifyOptions
		anchor    Anchor
		unchecked []string
	}{
		{"bundle", VerifyOptions{Bundle: bundle}, AnchorBundle, []string{UncheckedBundle}},
		{"bundle of a context", VerifyOptions{Bundle: bundle, OfConnection: true}, AnchorBundle,
			[]string{UncheckedBundle}},
		{"bundle that a directory holds", VerifyOptions{Bundle: bundle, Held: true}, AnchorDirectory,
			[]string{UncheckedBundle}},
		{"bundle and keys", VerifyOptions{Bundle: bundle, Keys: keys}, AnchorBundle,
			[]string{UncheckedKeys, UncheckedBundle}},
		{"keys", VerifyOptions{Keys: keys}, AnchorKeys, []string{UncheckedKeys, UncheckedBundle}},
		{"keys, and a connection to another domain", VerifyOptions{Keys: keys, Bundle: stranger, OfConnection: true},
			AnchorKeys, []string{UncheckedKeys, UncheckedBundle}},
		{"directory", VerifyOptions{Directory: "https://ad.test"}, AnchorDirectory, []string{}},
		{"directory of another domain",
			VerifyOptions{Directory: "https://ad.test", Bundle: stranger, OfConnection: true},
			AnchorDirectory, []string{}},
		{"directory of the same domain",
			VerifyOptions{Directory: "https://ad.test", Bundle: bundle, OfConnection: true},
			AnchorBundle, []string{UncheckedBundle}},
	} {
		report, err := Verify(proof, row.opts)
		if err != nil || !report.Authentic || !report.Logged || report.Anchor != row.anchor ||
			!slices.Equal(report.Unchecked, row.unchecked) {
			t.Errorf("%s: %v, unchecked %q\n%s", row.name, err, report.Unchecked, report)
		}

		if row.anchor != AnchorDirectory || row.opts.Held {
			continue
		}

		fingerprints, err := Fingerprints(alpha, must2(k.o.ca.Bundle().Marshal()))
		must(t, err)

		want := DirectoryWord{Address: "https://ad.test", Authorities: 1, Fingerprints: fingerprints,
			KeyDocument: "1.2"}
		if report.Directory == nil || !reflect.DeepEqual(*report.Directory, want) {
			t.Errorf("%s: the directory holds %+v, want %+v", row.name, report.Directory, want)
		}
	}

	for name, opts := range map[string]VerifyOptions{
		"a bundle of another domain":               {Bundle: stranger},
		"the bundle of a connection elsewhere":     {Bundle: stranger, OfConnection: true},
		"keys of another domain":                   {Keys: newOrigin(t, beta).jws(t)},
		"a bundle of another domain, and its keys": {Bundle: stranger, Keys: keys},
		"a bundle, and keys of another domain":     {Bundle: bundle, Keys: newOrigin(t, beta).jws(t)},
	} {
		if report, err := Verify(proof, opts); ExitCode(err) != 12 || report.Authentic || report.Anchor != AnchorNone {
			t.Errorf("%s: exit code %d: %v\n%s", name, ExitCode(err), err, report)
		}
	}

	for name, text := range map[string]string{
		"none": "x", "changed": mutateSignature(keys), "cut": keys[:len(keys)-3],
	} {
		if report, err := Verify(proof, VerifyOptions{Keys: text}); ExitCode(err) != 10 || report.Authentic {
			t.Errorf("%s: exit code %d: %v\n%s", name, ExitCode(err), err, report)
		}
	}
}

func must2[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}

	return value
}

// A record alone is verified by a key document that the verifier gives, with a bundle
// or pinned, and by nothing less.
//
// Requirement: SEC-017
func TestABareRecordIsVerifiedOrRefused(t *testing.T) {
	k := newProofKit(t)
	keys, bundle := k.o.jws(t), k.o.ca.Bundle()

	record := k.proof(t).Record
	for _, row := range []struct {
		opts   VerifyOptions
		anchor Anchor
		code   int
	}{
		{VerifyOptions{}, AnchorNone, 12},
		{VerifyOptions{Bundle: bundle}, AnchorNone, 12},
		{VerifyOptions{Keys: keys}, AnchorKeys, 0},
		{VerifyOptions{Bundle: bundle, Keys: keys}, AnchorBundle, 0},
		{VerifyOptions{Directory: "https://ad.test"}, AnchorNone, 12},
	} {
		report, err := Verify([]byte(record), row.opts)
		if ExitCode(err) != row.code || report.Authentic != (row.code == 0) || report.Anchor != row.anchor ||
			report.Subject.Agent != "printer" {
			t.Errorf("%+v: exit code %d: %v\n%s", row, ExitCode(err), err, report)
		}

		if !report.Subject.Deadline.IsZero() || report.Logged {
			t.Errorf("a record shows no deadline: %s", report)
		}
	}

	// A signature of any other bytes.
	jws, disclosures, _ := strings.Cut(record, "~")
	head := jws[:strings.LastIndexByte(jws, '.')+1]

	signature := must2(directory.B64.DecodeString(jws[len(head):]))
	for i := range len(signature) + 1 {
		mutant := slices.Clone(signature)
		if i < len(signature) {
			mutant[i] ^= 0x01
		} else {
			clear(mutant)
		}

		text := []byte(head + directory.B64.EncodeToString(mutant) + "~" + disclosures)
		for _, opts := range []VerifyOptions{{}, {Bundle: bundle}, {Keys: keys}, {Bundle: bundle, Keys: keys}} {
			if report, err := Verify(text, opts); ExitCode(err) == 0 || report.Authentic {
				t.Fatalf("byte %d of the signature changed: %v\n%s", i, err, report)
			}
		}
	}
}

// A bare record by a key that its domain lists and no SVID vouches for, or that it
// revoked, is not the domain's.
//
// Requirement: SEC-017
func TestABareRecordByAnUnattestedKeyIsRefused(t *testing.T) {
	k := newProofKit(t)
	thief, err := OpenKey(t.TempDir())
	must(t, err)
	jws, err := thief.sign(signed.TypeRecord, k.statement(t))
	must(t, err)
	record := []byte(signed.Record{JWS: jws, Disclosures: k.texts}.String())

	k.o.issue(t, 2, k.o.signingKey(t), signed.SigningKey{Public: thief.Public(), Node: k.o.svid.ID})
	opts := VerifyOptions{Bundle: k.o.ca.Bundle(), Keys: k.o.jws(t)}

	var failed *StepError

	_, err = Verify(record, opts)
	if !errors.As(err, &failed) || failed.Step != "key attestation" || ExitCode(err) != 12 {
		t.Errorf("not attested: %v", err)
	}

	k.o.doc.Revoked = []string{thief.ID()}
	k.o.ring.SetOwn(k.o.doc)

	for _, opts := range []VerifyOptions{{Keys: k.o.jws(t)}, {Keys: k.o.jws(t), Bundle: k.o.ca.Bundle()}} {
		if report, err := Verify(record, opts); ExitCode(err) != 12 || report.Authentic {
			t.Errorf("revoked: %v\n%s", err, report)
		}
	}
}

// Lifetimes are judged as of the time that the verifier names: deadlines of proofs, and
// of a bare record the key document, its attestations and certificates.
//
// Requirement: SEC-017
func TestLifetimesAreJudgedAsOfATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newProofKit(t)
		proof, record := k.proof(t), []byte(k.proof(t).Record)
		keys, bundle := k.o.jws(t), k.o.ca.Bundle()
		time.Sleep(100 * 24 * time.Hour)

		at := func(after time.Duration) time.Time { return k.made.Add(after) }
		for _, row := range []struct {
			name  string
			input []byte
			opts  VerifyOptions
			code  int
		}{
			{"a proof, now", proof.Bytes(), VerifyOptions{Bundle: bundle}, 14},
			{"a proof, before its deadline", proof.Bytes(), VerifyOptions{Bundle: bundle, At: at(7199 * time.Second)},
				0},
			{"a proof, at its deadline", proof.Bytes(), VerifyOptions{Bundle: bundle, At: at(7200 * time.Second)}, 14},
			{"a proof, before it was made", proof.Bytes(), VerifyOptions{Bundle: bundle, At: at(-time.Hour)}, 10},
			{"a record, now", record, VerifyOptions{Bundle: bundle, Keys: keys}, 12},
			{"a record, while its SVID held", record,
				VerifyOptions{Bundle: bundle, Keys: keys, At: at(59 * time.Minute)}, 0},
			{"a record, after its SVID", record, VerifyOptions{Bundle: bundle, Keys: keys, At: at(61 * time.Minute)},
				12},
			{"a record by pinned keys, now", record, VerifyOptions{Keys: keys}, 14},
			{"a record by pinned keys, after the SVID", record, VerifyOptions{Keys: keys, At: at(61 * time.Minute)}, 0},
			{"a record by pinned keys, at their end", record,
				VerifyOptions{Keys: keys, At: at(signed.KeyDocumentLifetime * time.Second)}, 14},
			{"a record, before it was made", record, VerifyOptions{Keys: keys, At: at(-time.Hour)}, 10},
		} {
			report, err := Verify(row.input, row.opts)
			if ExitCode(err) != row.code || report.Authentic != (row.code == 0) {
				t.Errorf("%s: exit code %d, want %d: %v\n%s", row.name, ExitCode(err), row.code, err, report)
			}

			// The signatures are judged before a proof's deadline, and after the end of a record's pinned keys.
			holds := row.code == 0 || row.code == 14 && row.opts.Keys == ""
			if strings.HasPrefix(report.Verdict, "authentic") != holds {
				t.Errorf("%s: the verdict is %q", row.name, report.Verdict)
			}
		}
	})
}

// Nobody signed a proof file's ext: it is named as unchecked, and what must be
// understood and isn't is refused as such.
//
// Requirement: SEC-017
func TestExtensionsOfAProofFile(t *testing.T) {
	k := newProofKit(t)
	opts := VerifyOptions{Bundle: k.o.ca.Bundle()}
	p := k.proof(t)
	p.Ext = jsontext.Value(`{"later":{"a":[1]}}`)

	report, err := Verify(p.Bytes(), opts)
	if err != nil || !report.Authentic || !slices.Contains(report.Unchecked, UncheckedExt) {
		t.Errorf("%v, unchecked %q\n%s", err, report.Unchecked, report)
	}

	p.Crit = []string{"later"}

	report, err = Verify(p.Bytes(), opts)
	if !errors.Is(err, signed.ErrUnsupported) || errors.Is(err, ErrFormat) || ExitCode(err) != 10 || report.Authentic {
		t.Errorf("an unknown name in crit: exit code %d: %v", ExitCode(err), err)
	}

	if err != nil && !strings.Contains(err.Error(), `"later"`) {
		t.Errorf("the name is not told: %v", err)
	}

	good := string(k.proof(t).Bytes())
	for name, members := range map[string]string{
		"an unknown member":        `"extra":1`,
		"ext that is no object":    `"ext":[1]`,
		"ext that is null":         `"ext":null`,
		"an empty ext":             `"ext":{}`,
		"a deep ext":               `"ext":{"a":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `}`,
		"ext with a name twice":    `"ext":{"a":1,"a":2}`,
		"a large ext":              `"ext":{"a":"` + strings.Repeat("x", 4<<10) + `"}`,
		"crit alone":               `"crit":["a"]`,
		"an empty crit":            `"ext":{"a":1},"crit":[]`,
		"crit of another name":     `"ext":{"a":1},"crit":["b"]`,
		"crit with a name twice":   `"ext":{"a":1},"crit":["a","a"]`,
		"crit that is not a list":  `"ext":{"a":1},"crit":"a"`,
		"crit of something else":   `"ext":{"a":1},"crit":[1]`,
		"a name in another's case": `"Ext":{"a":1}`,
	} {
		text := strings.Replace(good, "{", "{"+members+",", 1)
		if report, err := Verify([]byte(text), opts); !errors.Is(err, ErrFormat) || ExitCode(err) != 10 ||
			report.Authentic {
			t.Errorf("%s: exit code %d: %v", name, ExitCode(err), err)
		}
	}
}

// What is signed and has an ext verifies, and nothing of it is named as unchecked. What
// needs a newer release is refused as that, and not as malformed.
//
// Requirement: SEC-017, FORM-001
func TestExtensionsOfSignedParts(t *testing.T) {
	extension := func(critical ...string) signed.Extension {
		return must2(signed.NewExtension([]byte(`{"colour":"red"}`), critical...))
	}
	for name, add := range map[string]func(*proofKit, signed.Extension){
		"page":      func(k *proofKit, e signed.Extension) { k.page.Extension = e },
		"statement": func(k *proofKit, e signed.Extension) { k.change.Extension = e },
	} {
		k := newProofKit(t)
		add(k, extension())
		k.page.Digests[0].H = directory.HashOf(k.statement(t))

		report, err := Verify(k.proof(t).Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle()})
		if err != nil || !report.Authentic || !slices.Equal(report.Unchecked, []string{UncheckedBundle}) {
			t.Errorf("%s with an ext: %v, unchecked %q\n%s", name, err, report.Unchecked, report)
		}

		add(k, extension("colour"))
		k.page.Digests[0].H = directory.HashOf(k.statement(t))

		report, err = Verify(k.proof(t).Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle()})
		if !errors.Is(err, signed.ErrUnsupported) || errors.Is(err, ErrFormat) || ExitCode(err) != 10 ||
			report.Authentic {
			t.Errorf("%s with a critical ext: exit code %d: %v", name, ExitCode(err), err)
		}
	}
}

// No byte of a proof file or a record can change, but in what the result names as
// unchecked, without a refusal. notes/users.md: "9 of 60 one-bit flips in a proof file are
// accepted".
//
// Requirement: SEC-017
func TestEveryByteIsCheckedOrNamed(t *testing.T) {
	k := newProofKit(t)
	other, err := OpenKey(t.TempDir())
	must(t, err)
	p := k.logged(t, k.proof(t), "alpha.test/roster/1")
	signed, _, _ := strings.Cut(p.Checkpoint, "\n\n")
	_, witness, _ := strings.Cut(signNote(other, "witness.test", signed+"\n"), "\n\n")
	p.Checkpoint += witness
	p.Ext = jsontext.Value(`{"later":1}`)

	compact := encodeCompact(p)
	keys, bundle := k.o.jws(t), k.o.ca.Bundle()

	now := time.Now()
	for _, row := range []struct {
		name  string
		file  []byte
		opts  VerifyOptions
		flips []byte
	}{
		{"proof by bundle", compact, VerifyOptions{At: now, Bundle: bundle}, flips(0x01, 0x20)},
		{"proof by keys", compact, VerifyOptions{At: now, Keys: keys}, flips(0x01)},
		{"layout", p.Bytes(), VerifyOptions{At: now, Keys: keys}, flips(0x01)},
		{"record by keys", []byte(p.Record + "\n"), VerifyOptions{At: now, Keys: keys}, flips(0x01, 0x20)},
		{"record by bundle", []byte(p.Record), VerifyOptions{At: now, Keys: keys, Bundle: bundle}, flips(0x01, 0x20)},
	} {
		t.Run(row.name, func(t *testing.T) {
			if report, err := Verify(row.file, row.opts); err != nil ||
				slices.Contains(report.Unchecked, UncheckedLayout) {
				t.Fatalf("%v\n%s", err, report)
			}

			tried, named := 0, 0
			for i := 0; i < len(row.file); i += sampleStep() {
				for _, flip := range row.flips {
					mutant := slices.Clone(row.file)
					mutant[i] ^= flip
					tried++

					report, err := Verify(mutant, row.opts)
					if err != nil {
						continue
					}

					named++

					if why := unnamed(row.file, mutant, report.Unchecked); why != "" {
						t.Fatalf("byte %d ^ %#x is taken, and only %q is named: %s\n%s", i, flip, report.Unchecked,
							why, mutant)
					}
				}
			}

			t.Logf("%d mutants, %d of them in what is named as unchecked", tried, named)
		})
	}
}

// White space, the order of members and escapes in a file's JSON mean nothing: a file
// that differs in these from how a directory writes it holds, and they are named.
//
// Requirement: SEC-017
func TestTheLayoutOfAFileIsNamed(t *testing.T) {
	k := newProofKit(t)
	p := k.logged(t, k.proof(t), "alpha.test/roster/1")

	opts := VerifyOptions{Bundle: k.o.ca.Bundle()}
	for name, file := range map[string][]byte{"lines": p.Bytes(), "compact": encodeCompact(p)} {
		report, err := Verify(file, opts)
		if err != nil || slices.Contains(report.Unchecked, UncheckedLayout) {
			t.Errorf("%s: %v, unchecked %q", name, err, report.Unchecked)
		}
	}

	text := string(encodeCompact(p))

	index := fmt.Sprintf(`,"index":%d`, *p.Index)
	for name, other := range map[string]string{
		"a space":             strings.Replace(text, ":", ": ", 1),
		"a line feed behind":  text + "\n\n",
		"a space in front":    " " + text,
		"another order":       strings.Replace(strings.Replace(text, index, "", 1), "{", "{"+index[1:]+",", 1),
		"an escape":           strings.Replace(text, `"page":"e`, `"page":"\u0065`, 1),
		"an escape in a name": strings.Replace(text, `"page"`, `"p\u0061ge"`, 1),
	} {
		report, err := Verify([]byte(other), opts)
		if other == text || err != nil || !report.Authentic || !slices.Contains(report.Unchecked, UncheckedLayout) {
			t.Errorf("%s: %v, unchecked %q\n%s", name, err, report.Unchecked, report)
		}
	}

	record := p.Record
	for text, named := range map[string]bool{record: false, record + "\n": false, record + " ": true,
		"\n" + record: true} {
		report, err := Verify([]byte(text), VerifyOptions{Keys: p.Keys})
		if err != nil || slices.Contains(report.Unchecked, UncheckedLayout) != named {
			t.Errorf("%q: %v, unchecked %q", text[len(text)-3:], err, report.Unchecked)
		}
	}
}

// sampleStep is the distance between the bytes that are changed: each one if tests run in full, else
// each seventh, because each change costs several signature checks.
func sampleStep() int { return directorytest.Sample(1, 7) }

// flips are the bits by which each byte is changed: some (0x01 makes another letter of
// most, 0x20 upper case of lower case), or all where time allows.
func flips(some ...byte) []byte {
	if os.Getenv("STORY_LONG") != "" {
		return []byte{0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80}
	}

	return some
}

// unnamed returns which change of a file the list of what is unchecked doesn't name.
func unnamed(file, mutant []byte, unchecked []string) string {
	if file[0] != '{' {
		if bytes.Equal(bytes.TrimSpace(file), bytes.TrimSpace(mutant)) && slices.Contains(unchecked, UncheckedLayout) {
			return ""
		}

		return "the record"
	}

	var before, after Proof
	if err := errors.Join(json.Unmarshal(file, &before), json.Unmarshal(mutant, &after)); err != nil {
		return err.Error()
	}

	checkpoint := func(p Proof) string {
		if !slices.Contains(unchecked, UncheckedSignatures) {
			return p.Checkpoint
		}

		lines := strings.SplitAfter(p.Checkpoint, "\n")

		return strings.Join(lines[:5], "") // without the witness's line
	}
	index := func(p Proof) string {
		if p.Index == nil {
			return ""
		}

		return fmt.Sprint(*p.Index)
	}

	same := true
	for name, equal := range map[string]bool{
		"record":        before.Record == after.Record,
		"page":          before.Page == after.Page,
		UncheckedKeys:   before.Keys == after.Keys,
		UncheckedBundle: bytes.Equal(before.Bundle, after.Bundle),
		"checkpoint":    checkpoint(before) == checkpoint(after),
		"index":         index(before) == index(after),
		"path":          slices.Equal(before.Path, after.Path),
		UncheckedExt:    bytes.Equal(before.Ext, after.Ext),
		"crit":          slices.Equal(before.Crit, after.Crit),
		"attestation":   before.Attestation == after.Attestation,
	} {
		if !equal && !slices.Contains(unchecked, name) {
			return name
		}

		same = same && equal
	}

	if same && before.Checkpoint == after.Checkpoint && !slices.Contains(unchecked, UncheckedLayout) {
		return "the layout"
	}

	return ""
}

// The lines of a checkpoint have one form, and each key one line.
func TestSignatureLinesHaveOneForm(t *testing.T) {
	k := newProofKit(t)
	good := k.logged(t, k.proof(t), "alpha.test/roster/1")
	text, line, _ := strings.Cut(good.Checkpoint, "\n\n")
	words := strings.Fields(line)
	raw := must2(base64.StdEncoding.DecodeString(words[2]))

	raw[len(raw)-1] ^= 1
	for name, checkpoint := range map[string]string{
		"a second line by the key": good.Checkpoint + "— " + words[1] + " " + base64.StdEncoding.EncodeToString(raw) +
			"\n",
		"the same line twice": good.Checkpoint + line,
		"spare bits":          text + "\n\n" + withSpareBits(line),
	} {
		p := *good

		p.Checkpoint = checkpoint
		if report, err := Verify(p.Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle()}); ExitCode(err) != 13 {
			t.Errorf("%s: exit code %d: %v\n%s", name, ExitCode(err), err, report)
		}
	}
}

// withSpareBits sets a bit of a padded base64 text that means nothing.
func withSpareBits(line string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	last := strings.IndexByte(line, '=') - 1
	changed := alphabet[strings.IndexByte(alphabet, line[last])|1]

	return line[:last] + string(changed) + line[last+1:]
}
