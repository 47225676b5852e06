package checkpoint

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

const specVectors = "../../docs/spec/vectors/checkpoint.json"

var updateVectors = flag.Bool("update", false, "write "+specVectors+" anew")

// A specVector is a checkpoint, the policy by which it is judged, and the verdict.
type specVector struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Policy  string `json:"policy"`
	Text    string `json:"text"`
}

// verdictOf judges a note by a policy, the first fault in the order of docs/spec/vectors.
func verdictOf(text, policy string) string {
	believed, err := ParsePolicy(policy)
	if err != nil {
		return "format"
	}

	note, err := Parse(text)
	if err != nil {
		return "format"
	}

	found, err := believed.Judge(note)

	switch {
	case errors.Is(err, ErrSignature):
		return "signature"
	case err != nil:
		return err.Error()
	case len(found.Logs) == 0 && len(believed.Logs) > 0:
		return "key"
	case !found.Quorum:
		return "witness"
	}

	return "ok"
}

func specKey(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("roster vectors: " + name))
	return ed25519.NewKeyFromSeed(seed[:])
}

// newVectors makes the vectors: good ones, and of each rule one that breaks it alone.
func newVectors() (vectors []specVector) {
	const origin = "alpha.test/roster/1795564800"

	at := time.Unix(1_795_564_800, 0)
	c := Checkpoint{origin, 1_234_567, directory.HashOf([]byte("a root"))}
	vkey := func(typ byte, name, key string) string {
		return VerifierKey{name, typ, publicOf(specKey(key))}.String()
	}
	log := "log " + vkey(TypeLog, origin, "ledger") + " https://ad.alpha.test/log/1795564800\n"
	w1 := "witness beta " + vkey(TypeWitness, "beta.test/witness", "beta") + "\n"
	w2 := "witness gamma " + vkey(TypeWitness, "gamma.test/witness", "gamma") + " https://gamma.test/witness\n"
	w3 := "witness delta " + vkey(TypeWitness, "delta.test/witness", "delta") + "\n"
	none, all := log+"quorum none\n", log+w1+w2+"group both all beta gamma\nquorum both\n"

	signed := Sign(c, specKey("ledger"))

	note, err := Parse(signed)
	if err != nil {
		panic(err)
	}

	by := func(name string) string { return Cosign(note, name+".test/witness", specKey(name), at) }
	add := func(name, verdict, policy, text string) {
		vectors = append(vectors, specVector{name, verdict, policy, text})
	}
	swap := func(old, with string) string { return strings.Replace(signed, old, with, 1) }

	// other is the note of another text, signed as the log would.
	other := func(text string) string {
		public := VerifierKey{origin, TypeLog, publicOf(specKey("ledger"))}
		n := Note{c, text, []Signature{{public.Name, public.ID(), ed25519.Sign(specKey("ledger"), []byte(text))}}}

		return n.String()
	}

	timed := func(seconds uint64) string {
		raw := binary.BigEndian.AppendUint64(nil, seconds)
		raw = append(raw, ed25519.Sign(specKey("beta"), cosigned(note.Text, seconds))...)

		return Signature{"beta.test/witness", VerifierKey{"beta.test/witness", TypeWitness,
			publicOf(specKey("beta"))}.ID(), raw}.String()
	}
	root := strings.Split(c.Text(), "\n")[2]

	add("a checkpoint", "ok", none, signed)
	add("of an empty log", "ok", none, Sign(Checkpoint{origin, 0, EmptyRoot}, specKey("ledger")))
	add("with an extension line", "ok", none, other(c.Text()+"an extension\n"))
	add("cosigned by both witnesses", "ok", all, signed+by("beta")+by("gamma"))
	add("with a line of a key that the policy does not name", "ok", none, signed+by("beta"))
	add("with a signature of a type that is unknown", "ok", none,
		signed+Signature{"pq.test", 7, []byte(strings.Repeat("x", 2420))}.String())
	add("two of three witnesses", "ok", log+w1+w2+w3+"group some 2 beta gamma delta\nquorum some\n",
		signed+by("beta")+by("delta"))
	add("a group of a group", "ok", log+w1+w2+w3+"group near any beta gamma\ngroup far all near delta\nquorum far\n",
		signed+by("delta")+by("gamma"))
	add("a policy without logs", "ok", w1+"quorum beta\n", signed+by("beta"))
	add("a policy with a comment, empty lines and tabs", "ok", "# ours\n\n"+strings.ReplaceAll(none, " ", "\t "),
		signed)
	add("one of two logs", "ok", "log "+vkey(TypeLog, "beta.test/roster/1", "other")+"\n"+none, signed)

	add("an origin that is empty", "format", none, swap(origin, ""))
	add("a size with a leading zero", "format", none, other(origin+"\n0123\n"+root+"\n"))
	add("a size with a sign", "format", none, other(origin+"\n+123\n"+root+"\n"))
	add("a size of 2^63", "format", none, other(origin+"\n9223372036854775808\n"+root+"\n"))
	add("a root of 31 bytes", "format", none, other(origin+"\n5\n"+b64.EncodeToString(make([]byte, 31))+"\n"))
	add("a root in another encoding", "format", none, other(origin+"\n5\n"+root[:42]+"/=\n"))
	add("no root", "format", none, other(origin+"\n5\n"))
	add("a carriage return", "format", none, swap("\n", "\r\n"))
	add("no signature", "format", none, note.Text+"\n")
	add("no empty line", "format", none, swap("\n\n", "\n"))
	add("without the last line feed", "format", none, strings.TrimSuffix(signed, "\n"))
	add("a line that begins with a hyphen", "format", none, swap("— ", "- "))
	add("two lines of one key", "format", none, signed+signed[strings.Index(signed, "— "):])
	add("a key name with a plus", "format", none, signed+strings.Replace(by("beta"), "beta.test", "beta+test", 1))
	add("a signature without padding", "format", none, strings.TrimRight(signed, "=\n")+"\n")
	add("a signature of four bytes", "format", none, signed+"— x.test AAAAAA==\n")
	add("65 signatures", "format", none, note.Text+"\n"+manyLines(65))
	add("64 signatures", "key", none, note.Text+"\n"+manyLines(64))

	add("signed by another key", "key", none, Sign(c, specKey("other")))
	add("of another log", "key", none, Sign(Checkpoint{"beta.test/roster/1", 5, c.Root}, specKey("ledger")))
	add("cosigned alone", "key", all, note.Text+"\n"+by("beta")+by("gamma"))
	add("another size under the signature", "signature", none, swap("1234567", "1234568"))
	add("an extension line under the signature", "signature", none, swap("\n\n", "\nmore\n\n"))
	add("a cosignature of another checkpoint", "signature", all,
		signed+by("gamma")+strings.Replace(by("beta"), by("beta")[40:60], by("gamma")[40:60], 1))
	add("a cosignature of the time 0", "signature", log+w1+"quorum beta\n", signed+timed(0))
	add("a cosignature behind the year 9999", "signature", log+w1+"quorum beta\n", signed+timed(maxTime+1))
	add("a log's signature in place of a cosignature", "signature", log+w1+"quorum beta\n",
		signed+Signature{"beta.test/witness", VerifierKey{"beta.test/witness", TypeWitness,
			publicOf(specKey("beta"))}.ID(), ed25519.Sign(specKey("beta"), []byte(note.Text))}.String())

	add("one of two witnesses that are asked for", "witness", all, signed+by("beta"))
	add("a witness that is not asked for", "witness", all, signed+by("beta")+by("delta"))
	add("one of three, two are asked for", "witness", log+w1+w2+w3+"group some 2 beta gamma delta\nquorum some\n",
		signed+by("beta"))
	add("a group without its group", "witness",
		log+w1+w2+w3+"group near any beta gamma\ngroup far all near delta\nquorum far\n", signed+by("delta"))

	for name, policy := range map[string]string{
		"a policy without a quorum":                 log,
		"a policy with two quorums":                 none + "quorum none\n",
		"a policy with an unknown keyword":          none + "mirror x\n",
		"a policy with an unknown quorum":           log + "quorum beta\n",
		"a policy with a quorum before its witness": "quorum beta\n" + w1,
		"a policy with a witness in two groups": log + w1 + w2 +
			"group a any beta\ngroup b all beta gamma\nquorum b\n",
		"a policy with a name twice":               log + w1 + strings.Replace(w2, "gamma ", "beta ", 1) + "quorum beta\n",
		"a policy with a witness called none":      log + strings.Replace(w1, "beta ", "none ", 1) + "quorum none\n",
		"a policy with a key twice":                log + log + "quorum none\n",
		"a policy with a threshold of 0":           log + w1 + "group a 0 beta\nquorum a\n",
		"a policy with a threshold too high":       log + w1 + "group a 2 beta\nquorum a\n",
		"a policy with a group without members":    log + w1 + "group a any\nquorum a\n",
		"a policy with a witness's key as a log's": strings.Replace(w1, "witness beta", "log", 1) + "quorum none\n",
		"a policy with a vkey of another id":       strings.Replace(none, "+", "+0", 1),
		"a policy without the last line feed":      strings.TrimSuffix(none, "\n"),
		"a policy with a control character":        "# \x01\n" + none,
	} {
		add(name, "format", policy, signed)
	}

	return vectors
}

// manyLines returns signature lines of so many unknown keys.
func manyLines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(Signature{"x.test", uint32(i), []byte("signature")}.String())
	}

	return b.String()
}

// otherwise are the vectors on which torchwood v0.9.0 judges otherwise: it wants the signatures of all logs of a
// policy and an origin from it, and takes some texts that C2SP forbids or leaves open.
var otherwise = []string{
	"a policy without logs", "one of two logs",
	"a policy with a control character", "a policy with a witness called none", "a policy without the last line feed",
	"a root in another encoding", "two lines of one key",
	"a cosignature behind the year 9999", "a cosignature of the time 0",
}

// The vectors in the repository are those that are made here, each gets its verdict, and torchwood takes what
// is good and refuses all else.
//
// Requirement: LOG-027
func TestSpecVectorsHaveTheirVerdicts(t *testing.T) {
	vectors := newVectors()
	slices.SortFunc(vectors, func(a, b specVector) int { return cmp.Compare(a.Verdict+a.Name, b.Verdict+b.Name) })

	text, err := json.Marshal(struct {
		Vectors []specVector `json:"vectors"`
	}{vectors}, jsontext.Multiline(true))
	if err != nil {
		t.Fatal(err)
	}

	if *updateVectors {
		if err := os.WriteFile(specVectors, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	if held, err := os.ReadFile(specVectors); err != nil || string(held) != string(text)+"\n" {
		t.Errorf("%s differs from what is made (%v): run go test ./directory/checkpoint -run SpecVectors -update",
			specVectors, err)
	}

	for _, v := range vectors {
		if got := verdictOf(v.Text, v.Policy); got != v.Verdict {
			t.Errorf("%s: got %s, want %s\n%s\n%s", v.Name, got, v.Verdict, v.Policy, v.Text)
		}

		policy, err := torchwood.ParsePolicy([]byte(v.Policy))
		if err == nil {
			_, _, err = torchwood.VerifyCheckpoint([]byte(v.Text), policy)
		}

		if (err == nil) != (v.Verdict == "ok") != slices.Contains(otherwise, v.Name) {
			t.Errorf("torchwood on %q (%s): %v", v.Name, v.Verdict, err)
		}
	}
}
