// Package credentials authenticates the callers of requests: by the client certificate of
// the connection, by a workload identity token with its proof (WIMSE), by an OAuth access
// token, or by a JWT-SVID.
//
//	keys, err := credentials.OpenKeys("https://login.example/jwks", nil)
//	verifier, err := credentials.New(credentials.Config{…}, bundles)
//	verified, err := verifier.Verify(credentials.Shown{TLS: r.TLS, Bearer: token}, time.Now())
//
// Tokens of others pass one gate: form, header and algorithm first, then the key, then the
// signature, then the claims. A refusal has a [Reason] for a counter and a text that has
// nothing of the token.
//
// # Files
//
//	verifier               the order of credentials, and client certificates
//	token                  JWT: form, signature and claims
//	bearer                 OAuth access tokens and JWT-SVIDs
//	wimse                  workload identity tokens and their proofs
//	workload               the proofs of an own workload
//	jwks                   the key sets of issuers
package credentials
