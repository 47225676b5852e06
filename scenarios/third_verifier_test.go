package scenarios

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A stranger is a verifier of proof files and staples that was written from docs/verify/README.md, "The format, step by
// step", and uses nothing of Roster: if a step is wrong or missing there, it is wrong or missing here. Each method
// is named by its steps. A step that fails panics with a failed.
type stranger struct {
	authorities []*x509.Certificate
	witnesses   []string // vkeys
	staple      bool
	at          int64
}

type failed struct{ error }

func need(ok bool, format string, args ...any) {
	if !ok {
		panic(failed{fmt.Errorf(format, args...)})
	}
}

func whole[T any](value T, err error) T {
	need(err == nil, "%v", err)
	return value
}

func digestOf(parts ...[]byte) []byte {
	sum := sha256.Sum256(bytes.Join(parts, nil))
	return sum[:]
}

func url64(text string) []byte { return whole(base64.RawURLEncoding.Strict().DecodeString(text)) }
func text64(data []byte) string {
	return base64.RawURLEncoding.EncodeToString(data)
}

type strangerJWK struct {
	X string `json:"x"`
}

func (k strangerJWK) thumbprint() string {
	return text64(digestOf([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + k.X + `"}`)))
}

type strangerKey struct {
	JWK          strangerJWK `json:"jwk"`
	Node         string      `json:"node"`
	Attestations []string    `json:"attestations"`
}

type strangerFile struct {
	Record      string                    `json:"record"`
	Page        string                    `json:"page"`
	Keys        string                    `json:"keys"`
	Attestation string                    `json:"attestation"`
	Bundle      jsontext.Value            `json:"bundle"`
	Checkpoint  string                    `json:"checkpoint"`
	Index       *uint64                   `json:"index"`
	Path        []string                  `json:"path"`
	Ext         map[string]jsontext.Value `json:"ext"`
}

// A strangerJWS is step 2.
type strangerJWS struct {
	Alg string   `json:"alg"`
	Typ string   `json:"typ"`
	Kid string   `json:"kid"`
	X5C []string `json:"x5c"`

	payload, signed, sig []byte
}

func parseStrangerJWS(text, typ string) (j strangerJWS) {
	parts := strings.Split(text, ".")
	need(len(parts) == 3, "a JWS has three parts")

	header := url64(parts[0])
	need(json.Unmarshal(header, &j) == nil && j.Typ == typ, "the header of %s", typ)

	want := fmt.Sprintf(`{"alg":"EdDSA","kid":%q,"typ":%q}`, j.Kid, typ)
	need(typ == "adattest+jws" || string(header) == want, "the header of %s: %s", typ, header)

	j.payload, j.sig, j.signed = url64(parts[1]), url64(parts[2]), []byte(parts[0]+"."+parts[1])

	var critical struct {
		Crit jsontext.Value `json:"crit"`
	}
	need(json.Unmarshal(j.payload, &critical) == nil && critical.Crit == nil, "crit in %s", typ)

	return j
}

func (j *strangerJWS) into(value any) {
	need(json.Unmarshal(j.payload, value) == nil, "a payload of %s", j.Typ)
}

// holds is the end of step 4.
func (j *strangerJWS) holds(leaf *x509.Certificate) bool {
	switch key := leaf.PublicKey.(type) {
	case ed25519.PublicKey:
		return j.Alg == "EdDSA" && ed25519.Verify(key, j.signed, j.sig)
	case *ecdsa.PublicKey:
		half, digest, alg := len(j.sig)/2, digestOf(j.signed), "ES256"

		if key.Curve == elliptic.P384() {
			sum := sha512.Sum384(j.signed)
			digest, alg = sum[:], "ES384"
		}

		r, s := new(big.Int).SetBytes(j.sig[:half]), new(big.Int).SetBytes(j.sig[half:])
		low := new(big.Int).Lsh(s, 1).Cmp(key.Params().N) < 0

		return j.Alg == alg && half == (key.Params().BitSize+7)/8 && low && ecdsa.Verify(key, digest, r, s)
	default:
		return false
	}
}

// counts is step 4.
func (v *stranger) counts(key strangerKey, issuer string, at int64) bool {
	return slices.ContainsFunc(key.Attestations, func(text string) bool {
		j := parseStrangerJWS(text, "adattest+jws")

		var body struct {
			Domain string      `json:"domain"`
			Node   string      `json:"node"`
			JWK    strangerJWK `json:"jwk"`
			Time   int64       `json:"time"`
		}
		j.into(&body)

		roots, between := x509.NewCertPool(), x509.NewCertPool()
		for _, authority := range v.authorities {
			roots.AddCert(authority)
		}

		var chain []*x509.Certificate
		for _, one := range j.X5C {
			chain = append(chain, whole(x509.ParseCertificate(whole(base64.StdEncoding.Strict().DecodeString(one)))))
			between.AddCert(chain[len(chain)-1])
		}

		need(len(chain) > 0, "an attestation without a chain")

		leaf := chain[0]
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: time.Unix(at, 0),
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})

		return err == nil && !leaf.IsCA && len(leaf.URIs) == 1 && leaf.URIs[0].String() == key.Node &&
			strings.HasPrefix(key.Node, issuer+"/roster/node/") && body.Node == key.Node && body.JWK == key.JWK &&
			body.Time <= at+60 && j.holds(leaf)
	})
}

// verify returns why a file is refused.
func (v *stranger) verify(text []byte) (err error) {
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case failed:
			err = fault.error
		default:
			panic(fault)
		}
	}()

	// Step 1.
	var file strangerFile

	need(json.Unmarshal(text, &file, json.RejectUnknownMembers(true)) == nil, "the file")
	need(file.Record != "" && file.Page != "" && (file.Keys == "") != (file.Attestation == "") &&
		(file.Attestation == "" || file.Bundle == nil) && (file.Checkpoint == "") == (file.Index == nil) &&
		(file.Checkpoint != "" || file.Path == nil) && (file.Ext == nil || len(file.Ext) > 0), "the members")
	need(!v.staple || len(text) <= 6144, "a staple of %d bytes", len(text))

	first, disclosures, _ := strings.Cut(file.Record, "~")
	page, record := parseStrangerJWS(file.Page, "adpage+jws"), parseStrangerJWS(first, "adrec+sd-jwt")

	type digests struct {
		SD []string `json:"_sd"`
	}

	var (
		listed struct {
			Iss   string `json:"iss"`
			Epoch uint64 `json:"epoch"`
			Iat   int64  `json:"iat"`
			From  uint64 `json:"from"`
			To    uint64 `json:"to"`
			D     []struct {
				U string `json:"u"`
				O string `json:"o"`
				H string `json:"h"`
				M string `json:"m"`
				R uint64 `json:"r"`
				X int64  `json:"x"`
			} `json:"d"`
		}
		stated struct {
			Iss   string  `json:"iss"`
			UID   string  `json:"uid"`
			Op    string  `json:"op"`
			Epoch uint64  `json:"epoch"`
			Rev   uint64  `json:"rev"`
			Log   uint64  `json:"log"`
			Reg   digests `json:"reg"`
			Doc   digests `json:"doc"`
		}
	)

	page.into(&listed)
	record.into(&stated)

	// Steps 3 to 5.
	keys := v.keys(&file, stated.Iss, listed.Iat)
	by := func(j *strangerJWS) {
		at := slices.IndexFunc(keys, func(k strangerKey) bool { return k.JWK.thumbprint() == j.Kid })
		need(at >= 0, "no key that counts has signed %s", j.Typ)
		need(ed25519.Verify(url64(keys[at].JWK.X), j.signed, j.sig), "the signature of %s", j.Typ)
	}

	need(listed.Iss == stated.Iss, "the page is of %s", listed.Iss)
	by(&page)
	by(&record)

	if file.Keys != "" {
		document := parseStrangerJWS(file.Keys, "adkeys+jws")
		by(&document)
	}

	// Step 6.
	need(stated.Op == "put" && strings.HasSuffix(file.Record, "~"), "the record")

	shown := strings.Split(strings.TrimSuffix(disclosures, "~"), "~")
	if disclosures == "" {
		shown = nil
	}

	for _, one := range shown {
		var parts []jsontext.Value

		committed := append(slices.Clone(stated.Reg.SD), stated.Doc.SD...)
		need(json.Unmarshal(url64(one), &parts) == nil && len(parts) == 3 &&
			slices.Contains(committed, text64(digestOf([]byte(one)))), "a disclosure")
	}

	// Step 7.
	at := -1
	for i, one := range listed.D {
		if one.U == stated.UID {
			at = i
		}
	}

	need(at >= 0, "the page does not list the record")
	entry := listed.D[at]

	slices.Sort(shown)
	need((entry.O == "put" || entry.O == "renew") && entry.H == text64(digestOf(record.payload)) &&
		entry.M == text64(digestOf([]byte(strings.Join(shown, "~")))) &&
		(listed.Epoch != stated.Epoch || entry.R >= stated.Rev), "the page lists another statement")
	need(listed.Iat <= v.at+60 && v.at < entry.X, "the time")

	// Step 8.
	need(!v.staple || len(listed.D) == 1 && listed.From == entry.R-1 && listed.To == entry.R &&
		v.at < listed.Iat+1800, "no staple")

	if file.Checkpoint == "" {
		need(len(v.witnesses) == 0, "not logged")
		return nil
	}

	v.included(&file, keys, fmt.Sprintf("%s/roster/%d", strings.TrimPrefix(stated.Iss, "spiffe://"), stated.Epoch),
		stated.Log, digestOf(record.payload))

	return nil
}

// keys is step 3, and the first half of step 5.
func (v *stranger) keys(file *strangerFile, issuer string, iat int64) (keys []strangerKey) {
	var document struct {
		Iss     string        `json:"iss"`
		Exp     int64         `json:"exp"`
		Revoked []string      `json:"revoked"`
		Keys    []strangerKey `json:"keys"`
	}

	if file.Attestation != "" {
		key := strangerKey{Attestations: []string{file.Attestation}}
		j := parseStrangerJWS(file.Attestation, "adattest+jws")
		j.into(&key)
		document.Keys = []strangerKey{key}
	} else {
		j := parseStrangerJWS(file.Keys, "adkeys+jws")
		j.into(&document)
		need(document.Iss == issuer && document.Exp > iat, "the key document")
	}

	for _, key := range document.Keys {
		if !slices.Contains(document.Revoked, key.JWK.thumbprint()) && v.counts(key, issuer, iat) {
			keys = append(keys, key)
		}
	}

	return keys
}

// included is steps 9 to 11.
func (v *stranger) included(file *strangerFile, keys []strangerKey, origin string, index uint64, statement []byte) {
	top, tail, _ := strings.Cut(file.Checkpoint, "\n\n")
	note := strings.Split(top, "\n")
	need(len(note) == 3 && note[0] == origin && regexp.MustCompile(`^(0|[1-9][0-9]{0,15})$`).MatchString(note[1]) &&
		strings.HasSuffix(tail, "\n"), "the checkpoint")

	size := whole(strconv.ParseUint(note[1], 10, 63))
	root := whole(base64.StdEncoding.Strict().DecodeString(note[2]))
	signed := map[string][]byte{} // by name and key id

	for _, line := range strings.Split(strings.TrimSuffix(tail, "\n"), "\n") {
		words := strings.Split(line, " ")
		need(len(words) == 3 && words[0] == "—", "a line of the checkpoint")

		raw := whole(base64.StdEncoding.Strict().DecodeString(words[2]))
		need(len(raw) > 4, "a line of the checkpoint")

		place := words[1] + " " + string(raw[:4])
		need(signed[place] == nil, "two lines by one key")
		signed[place] = raw[4:]
	}

	line := func(name string, typedKey []byte) []byte {
		return signed[name+" "+string(digestOf([]byte(name+"\n"), typedKey)[:4])]
	}

	held := false
	for _, key := range keys {
		public := url64(key.JWK.X)
		if signature := line(origin, append([]byte{1}, public...)); signature != nil {
			need(ed25519.Verify(public, []byte(top+"\n"), signature), "a member's line")

			held = true
		}
	}

	need(held, "no member signed the checkpoint")

	// Step 10, by RFC 9162, 2.1.3.2.
	need(*file.Index == index && index < size, "the index")

	hash := digestOf([]byte{0, 1}, statement)
	n, last := index, size-1

	for _, part := range file.Path {
		need(last > 0, "the path is too long")

		if n%2 == 1 || n == last {
			hash = digestOf([]byte{1}, url64(part), hash)

			for n%2 == 0 && n != 0 {
				n, last = n/2, last/2
			}
		} else {
			hash = digestOf([]byte{1}, hash, url64(part))
		}

		n, last = n/2, last/2
	}

	need(last == 0 && bytes.Equal(hash, root), "another root")

	// Step 11.
	for _, vkey := range v.witnesses {
		parts := strings.SplitN(vkey, "+", 3)
		key := whole(base64.StdEncoding.DecodeString(parts[2]))

		signature := line(parts[0], key)
		need(len(signature) == 8+ed25519.SignatureSize, "%s has not cosigned", parts[0])

		when := binary.BigEndian.Uint64(signature)
		message := fmt.Sprintf("cosignature/v1\ntime %d\n%s\n", when, top)
		need(when > 0 && ed25519.Verify(key[1:], []byte(message), signature[8:]), "the cosignature of %s", parts[0])
	}
}

// The page of the format suffices: a verifier that was written from it judges each proof and staple of the vectors as
// Roster does, and no file with a changed byte verifies.
//
// Requirement: LOG-015, LOG-024, LOG-027
func TestAVerifierFromThePageOfTheFormat(t *testing.T) {
	const vectors = "../docs/spec/vectors/"

	var keys struct {
		At          int64    `json:"at"`
		Authorities [][]byte `json:"authorities"`
	}
	must(t, json.Unmarshal(valueOf(os.ReadFile(vectors+"keys.json")), &keys))

	var authorities []*x509.Certificate
	for _, one := range keys.Authorities {
		authorities = append(authorities, valueOf(x509.ParseCertificate(one)))
	}

	for _, file := range []string{"proof", "staple"} {
		var list struct {
			Vectors []struct {
				Name      string   `json:"name"`
				Text      string   `json:"text"`
				Verdict   string   `json:"verdict"`
				Witnesses []string `json:"witnesses"`
				At        int64    `json:"at"`
			} `json:"vectors"`
		}
		must(t, json.Unmarshal(valueOf(os.ReadFile(vectors+file+".json")), &list))

		for _, vector := range list.Vectors {
			v := &stranger{authorities, vector.Witnesses, file == "staple", keys.At}
			if vector.At != 0 {
				v.at = vector.At
			}

			if err := v.verify([]byte(vector.Text)); (err == nil) != (vector.Verdict == "ok") {
				t.Errorf("%s, %q: %v, want %s", file, vector.Name, err, vector.Verdict)
			}

			if vector.Name != "a staple" && vector.Name != "cosigned by both witnesses" {
				continue
			}

			// The bundle is for those who have no other, and nothing here reads it.
			var parts map[string]jsontext.Value
			must(t, json.Unmarshal([]byte(vector.Text), &parts))

			delete(parts, "bundle")

			text := valueOf(json.Marshal(parts, json.Deterministic(true)))
			must(t, v.verify(text))

			// .ci/verify has the scripts read a mutant of each byte.
			for i := 0; i < len(text); i += 7 {
				mutant := slices.Clone(text)

				mutant[i] ^= 1
				if v.verify(mutant) == nil {
					t.Errorf("%s, %q verifies with byte %d changed", file, vector.Name, i)
				}
			}
		}
	}
}

// The scripts have at most 60 lines and no packages; .ci/verify runs them on the vectors and on mutants of them.
//
// Requirement: LOG-015
func TestTheScriptsOfVerifiersAreShort(t *testing.T) {
	imports := map[string]*regexp.Regexp{
		"verify.mjs": regexp.MustCompile(`(?m)^import .* from '(?:node:)?([^']+)'`),
		"verify.py":  regexp.MustCompile(`(?m)^(?:import|from) ([a-z0-9_, .]+)`),
	}
	standard := []string{"crypto", "fs", "url", "argparse", "base64", "hashlib", "json", "pathlib", "re", "subprocess",
		"tempfile", "time"}

	for name, imported := range imports {
		text := valueOf(os.ReadFile("../docs/verify/" + name))
		if n := bytes.Count(text, []byte("\n")); n > 60 {
			t.Errorf("%s has %d lines, at most 60", name, n)
		}

		found := imported.FindAllSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s imports nothing", name)
		}

		for _, one := range found {
			for _, module := range strings.Split(string(one[1]), ", ") {
				if !slices.Contains(standard, module) {
					t.Errorf("%s imports %s", name, module)
				}
			}
		}
	}

	if _, err := os.Stat("../.ci/verify"); errors.Is(err, os.ErrNotExist) {
		t.Error("nothing runs the scripts")
	}
}
