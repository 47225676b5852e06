package doctor

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
)

// A secret is removed as a whole where others put it into a text, and what stands beside it stays.
//
// Requirement: OPS-034
func TestSecretsAreRemovedAsAWhole(t *testing.T) {
	for _, text := range []string{
		`password=CANARY-1 beside=1`,
		`password: "CANARY-1 CANARY-2" beside`,
		`password: 'CANARY-1 CANARY-2' beside`,
		`{"password":"CANARY-1 CANARY-2","beside":1}`,
		`{"password":"CANARY-1\"CANARY-2","beside":1}`,
		`{"msg":"{\"token\":\"CANARY-1 CANARY-2\",\"beside\":1}"}`,
		`idempotency_key="CANARY-1 CANARY-2" beside=1`,
		"Cookie: a=CANARY-1; b=CANARY-2\nbeside",
		`{"cookie":"a=CANARY-1; b=CANARY-2","beside":1}`,
		"Authorization: Bearer CANARY-1\nbeside",
		`"authorization": "Basic CANARY-1" beside`,
		`https://user:CANARY-1@beside.test/`,
		`https://beside.test/?q=CANARY-1&r=CANARY-2`,
		`?token=CANARY-1&beside=1`,
		"-----BEGIN EC PRIVATE KEY-----\nCANARY-1\n-----END EC PRIVATE KEY-----\nbeside",
		"beside AGE-SECRET-KEY-1CANARY",
		"beside eyJCANARY-1.CANARY-2.CANARY-3",
		"beside roster-peer-1~CANARY-1",
	} {
		kept := string(withoutSecrets([]byte(text)))
		if strings.Contains(kept, "CANARY") || !strings.Contains(kept, "beside") {
			t.Errorf("of %s is left %s", text, kept)
		}
	}
}

// The log of an archive begins anywhere, so also inside a private key. Lines before and behind the key stay.
//
// Requirement: OPS-034
func TestTheRestOfACutKeyIsRemoved(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)

	long, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)

	for _, secret := range []any{key, long} {
		der, err := x509.MarshalPKCS8PrivateKey(secret)
		must(t, err)

		lines := strings.Split(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "\n")
		for cut := 1; cut < len(lines)-1; cut++ {
			text := strings.Join(lines[cut:], "\n") + "beside"

			kept := string(withoutSecrets([]byte(text)))
			if kept != "[private key removed]\nbeside" {
				t.Errorf("of a key without its first %d lines is left %s", cut, kept)
			}
		}
	}

	prefixed := "Nov 28 node roster: " + strings.Repeat("CANARYab", 8) + "\r\nNov 28 node roster: CANARY==\r\n" +
		"Nov 28 node roster: -----END PRIVATE KEY-----\r\nbeside"
	if kept := string(withoutSecrets([]byte(prefixed))); kept != "[private key removed]\r\nbeside" {
		t.Errorf("left is %s", kept)
	}
}
