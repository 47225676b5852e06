package doctor

import "regexp"

// secretName matches the name of a secret and the signs before its value, as in a header, a URL, YAML, JSON, or JSON in
// a text of JSON.
const secretName = `(?i)((?:authorization|cookie|idempotency[-_]key|api[-_]?key|password|passwd|secret|token)` +
	`\\?["']?[:=]\s*)`

// secretForms are the secrets that a text is searched for, with the text that replaces each. No part of a support
// archive is made of secrets; this keeps out those that others put where they don't belong: into a URL, a log or an
// error.
var secretForms = []struct {
	form  *regexp.Regexp
	place string
}{
	{regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`),
		"[private key removed]"},
	// the rest of a key whose beginning was cut off with that of a log: lines of base64, a shorter one, and the end
	{regexp.MustCompile(`(?:[^\n]*[A-Za-z0-9+/]{40,}\r?\n)*(?:[^\n]*\n)?[^\n]*-----END [A-Z ]*PRIVATE KEY-----`),
		"[private key removed]"},
	{regexp.MustCompile(`AGE-SECRET-KEY-1[0-9A-Z]+`), "[private key removed]"},
	// JWS and JWT in compact form: access tokens, SVIDs, operators' proofs
	{regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]*`), "[token removed]"},
	{regexp.MustCompile(`roster-peer-[0-9]+[~.][^\s"'\\]+`), "[invitation removed]"},
	{regexp.MustCompile(`(?i)(\b(?:bearer|basic|dpop) )[\w~+/.=-]{6,}`), "${1}[credential removed]"},
	// the value of such a name: in escaped quotes, in quotes, with blanks if it is a header's, or bare
	{regexp.MustCompile(secretName + `(\\")[^"\\\n]+`), "${1}${2}[removed]"},
	{regexp.MustCompile(secretName + `(")(?:[^"\\\n]|\\.)+`), "${1}${2}[removed]"},
	{regexp.MustCompile(secretName + `(')[^'\n]+`), "${1}${2}[removed]"},
	{regexp.MustCompile(`(?i)(\bcookie: *)[^"'\\\n]+`), "${1}[removed]"},
	{regexp.MustCompile(secretName + `[^\s"'\\,;&]+`), "${1}[removed]"},
	{regexp.MustCompile(`(\w://)[^\s/@"']+@`), "${1}[removed]@"},
	{regexp.MustCompile(`(https?://[^\s?"'\\]+\?)[^\s"'\\]+`), "${1}[removed]"},
}

// withoutSecrets returns a text with a remark in the place of each secret.
func withoutSecrets(text []byte) []byte {
	for _, secret := range secretForms {
		text = secret.form.ReplaceAll(text, []byte(secret.place))
	}

	return text
}
