//go:build !compatnext

package federation

import (
	"crypto/x509"
	"encoding/base64"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/trust"
)

// A vector is a text of docs/spec/vectors and the verdict that a reader must reach.
type vector struct {
	Name     string   `json:"name"`
	Verdict  string   `json:"verdict"`
	Critical []string `json:"critical"`
	Text     string   `json:"text"`
}

// The pages and heads for other implementations pass the real gate, with the keys of
// the real key document, or are refused with the code that the vector names.
//
// Requirement: FORM-001, FORM-010
func TestTheGateGivesSpecVectorsTheirVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var believed struct {
			At          int64    `json:"at"`
			Authorities []string `json:"authorities"`
			KeyDocument string   `json:"key_document"`
		}
		readVectors(t, "keys.json", &believed)
		time.Sleep(time.Until(time.Unix(believed.At, 0)))

		reader := newWorld().open(t, t.TempDir(), 1, newModel(beta, alpha), active(alpha, 1))
		reader.cfg.Keys = ringOf(t, believed.Authorities, believed.KeyDocument)
		reader.Mesh.cfg.Keys = reader.cfg.Keys

		gates := map[string]func(text string) error{
			"page.json": func(text string) error {
				_, err := reader.receiver.verify(replica.Sender{Domain: alpha}, signed.TypePage, text)
				return err
			},
			"head.json": func(text string) error {
				_, err := reader.receiver.verify(replica.Sender{Domain: alpha}, signed.TypeHead, text)
				return err
			},
		}
		for name, gate := range gates {
			var file struct {
				Vectors []vector `json:"vectors"`
			}
			readVectors(t, name, &file)

			for _, v := range file.Vectors {
				if len(v.Critical) > 0 {
					continue // for a reader that knows more than this release
				}

				got := "ok"
				if err := gate(v.Text); err != nil {
					got = string(protocol.CodeOf(err))
				}

				if got != v.Verdict {
					t.Errorf("%s: %s: got %q, want %q", name, v.Name, got, v.Verdict)
				}
			}
		}
	})
}

func readVectors(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile("../docs/spec/vectors/" + name)
	must(t, err)
	must(t, json.Unmarshal(text, into))
}

// ringOf is a keyring of package trust that has adopted a key document of alpha.
func ringOf(t *testing.T, authorities []string, keyDocument string) *trust.Keyring {
	t.Helper()
	bundles := trust.NewBundles()

	var certificates []*x509.Certificate
	for _, text := range authorities {
		der, err := base64.StdEncoding.DecodeString(text)
		must(t, err)
		certificate, err := x509.ParseCertificate(der)
		must(t, err)
		certificates = append(certificates, certificate)
	}

	must(t, bundles.SetX509(alpha, certificates))

	key, err := trust.OpenKey(t.TempDir())
	must(t, err)
	ring := trust.NewKeyring(beta, key, bundles)
	_, err = ring.Adopt(alpha, keyDocument)
	must(t, err)

	return ring
}

var _ Keyring = (*trust.Keyring)(nil)
