package doctor

import (
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
