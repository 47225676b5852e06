package credentials

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// proofLife is the lifetime of a proof that we make. Clocks may differ by that much to
// either side of the lifetime that a directory accepts.
const proofLife = maxProofLife / 2

// A Workload authenticates by a workload identity token and a proof for each request.
// Both files are read for each request, because the issuer replaces them.
type Workload struct{ witFile, keyFile string }

// OpenWorkload returns the workload of a workload identity token in a file and its
// private key (PKCS#8 in PEM), which must be the one that the token confirms.
func OpenWorkload(witFile, keyFile string) (*Workload, error) {
	w := &Workload{witFile, keyFile}

	// A proof that is never sent shows that the two files belong together.
	_, _, err := w.Prove("GET", "https://localhost", time.Now())

	return w, err
}

// Prove returns the token and a proof for one request of a method to target, an absolute
// URI, at the time now (draft-ietf-wimse-wpt-02, 2). The proof names the method too, as
// those of RFC 9449 do: a verifier that doesn't know that claim must ignore it.
func (w *Workload) Prove(method, target string, now time.Time) (wit, proof string, err error) {
	text, err := os.ReadFile(w.witFile)
	if err != nil {
		return "", "", fmt.Errorf("read the workload identity token: %w", err)
	}

	pem, err := os.ReadFile(w.keyFile)
	if err != nil {
		return "", "", fmt.Errorf("read the workload's key: %w", err)
	}

	key, err := trust.ParseKey(pem)
	if err != nil {
		return "", "", fmt.Errorf("the workload's key %s: %w", w.keyFile, err)
	}

	wit = string(bytes.TrimSpace(text))

	proof, err = prove(wit, key, method, target, now)
	if err != nil {
		return "", "", fmt.Errorf("the workload identity token %s: %w", w.witFile, err)
	}

	return wit, proof, nil
}

// ProveBySource is Workload.Prove by a WIT-SVID of a source's Workload API. The error is
// trust.ErrNoWITSVID if the source has none.
func ProveBySource(
	ctx context.Context, source *trust.Source, method, target string, now time.Time,
) (wit, proof string, err error) {
	svid, err := source.WITSVID(ctx, now)
	if err != nil {
		return "", "", err
	}

	key, ok := svid.PrivateKey.(crypto.Signer)
	if !ok {
		return "", "", errors.New("the key of the WIT-SVID from the Workload API cannot sign")
	}

	if proof, err = prove(svid.Marshal(), key, method, target, now); err != nil {
		return "", "", fmt.Errorf("the WIT-SVID of the Workload API: %w", err)
	}

	return svid.Marshal(), proof, nil
}

var errOtherKey = errors.New("the key is not the one that the token confirms")

func prove(wit string, key crypto.Signer, method, target string, now time.Time) (string, error) {
	t, err := parseToken(wit)
	if err != nil {
		return "", err
	}

	public, alg, err := t.confirmation()
	if err != nil {
		return "", err
	}

	// The directory would refuse the proof without saying which file is wrong.
	if own, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !own.Equal(public) {
		return "", errOtherKey
	}

	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails

	claims, err := json.Marshal(map[string]any{
		"aud": target, "exp": now.Add(proofLife).Unix(), "jti": directory.B64.EncodeToString(id[:]),
		"wth": tokenHash(wit),
		"htm": method,
	})
	if err != nil {
		return "", err
	}

	options := (&jose.SignerOptions{}).WithType(typeWPT)

	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(alg), Key: key}, options)
	if err != nil {
		return "", err
	}

	signed, err := signer.Sign(claims)
	if err != nil {
		return "", err
	}

	return signed.CompactSerialize()
}
