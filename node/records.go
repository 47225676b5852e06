package node

import (
	"context"
	"encoding/json"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation"
	"github.com/roster-mesh/roster/trust"
)

// records serves signed evidence: records of the own domain and of others.
type records struct {
	domain  spiffeid.TrustDomain
	mesh    *federation.Mesh
	store   *consensus.Store
	keyring *trust.Keyring
	bundles *trust.Bundles
	ledgers ledgers
}

// Record implements ad.Records. A registration that is in no stream has a record too,
// for its readers in its own domain.
func (r records) Record(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) (string, error) {
	record, err := r.mesh.Record(ctx, origin, rid)
	if origin != r.domain || directory.ProblemOf(err) != directory.NotFound {
		return record, err
	}

	payload, disclosures, ok := r.store.Own(rid)
	if !ok {
		return "", err
	}

	jws, err := r.keyring.Sign(signed.TypeRecord, payload)
	if err != nil {
		return "", directory.Refuse(directory.Unavailable, "this node can't sign at the moment: %w", err)
	}

	return signed.Record{JWS: jws, Disclosures: disclosures}.String(), nil
}

// Staple implements ad.Records.
func (r records) Staple(origin spiffeid.TrustDomain, rid directory.RID) ([]byte, error) {
	if origin != r.domain {
		return nil, directory.Refuse(directory.ForeignRegistration,
			"this is a copy of a registration of %s, and only a node of that domain can sign that it is in force now; "+
				"ask one for the staple, or this node for the proof", origin.Name())
	}

	record, page, attestation, err := r.mesh.Staple(rid)
	if err != nil {
		return nil, r.notExported(rid, err)
	}

	staple, err := json.Marshal(trust.Proof{Record: record, Page: page, Attestation: attestation})
	if err != nil {
		return nil, err
	}

	if len(staple) > trust.MaxStaple {
		return nil, directory.Refuse(directory.NotFound, "the staple of registration %s would have %d bytes, and at "+
			"most %d are allowed; a shorter document makes it smaller, and its proof has no such bound", rid,
			len(staple), trust.MaxStaple)
	}

	return staple, nil
}

// notExported explains that a registration of the own domain is not found in its mesh stream.
func (r records) notExported(rid directory.RID, err error) error {
	if _, _, own := r.store.Own(rid); own && directory.ProblemOf(err) == directory.NotFound {
		return directory.Refuse(directory.NotFound,
			"registration %s is not exported, so no page proves it; it has a record", rid)
	}

	return err
}

// Proof implements ad.Records. A proof file has the record, the page that lists it, the
// key document and the origin's bundle (trust.md, "What an auditor gets").
func (r records) Proof(ctx context.Context, origin spiffeid.TrustDomain, rid directory.RID) ([]byte, error) {
	record, page, keys, err := r.mesh.Proof(ctx, origin, rid)
	if err != nil {
		return nil, r.notExported(rid, err)
	}

	bundle, err := r.bundles.Authorities(origin)
	if err != nil {
		return nil, err
	}

	proof := trust.Proof{Record: record, Page: page, Keys: keys, Bundle: bundle}
	if err := r.include(&proof, origin); err != nil {
		return nil, err
	}

	return json.Marshal(proof)
}

// include adds to a proof that the statement is in the ledger of its origin. A proof of a
// statement that this node can't prove to be there remains one of origin and freshness.
func (r records) include(proof *trust.Proof, origin spiffeid.TrustDomain) error {
	record, err := signed.ParseRecord(proof.Record)
	if err != nil {
		return err
	}

	payload, _, err := r.keyring.Verify(origin, signed.TypeRecord, record.JWS)
	if err != nil {
		return err
	}

	statement, err := signed.ParseStatement(payload)
	if err != nil {
		return err
	}

	// An error here costs the proof its part about the ledger; the rest of it holds alone.
	note, path, err := r.ledgers.inclusion(origin, statement.Epoch, statement.Leaf)
	if err == nil {
		proof.Checkpoint, proof.Index, proof.Path = note, &statement.Leaf, path
	}

	return nil
}
