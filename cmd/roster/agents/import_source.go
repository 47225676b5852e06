package agents

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/trust/card"
)

// importedFrom is the member that records an imported document's source. The document at
// the source doesn't have it.
const importedFrom = directory.ImportedFrom

// recordSource adds the member importedFrom to a document.
func (im *importer) recordSource(i *item) error {
	if im.kind == directory.KindWoA {
		return nil // the crawler has added it
	}

	members, err := directory.ParseObject(i.document)
	if err != nil {
		return err
	}

	value := []byte{'{'}
	if im.origin == "" {
		value = strictjson.AppendText(value, "source", i.Source)
	} else {
		value = strictjson.AppendText(value, "source", im.origin)
		value = strictjson.AppendText(value, "item", i.Source)
	}

	// The digest is of the document as it came, without the member that is added here.
	sum := sha256.Sum256(i.document)

	value = strictjson.AppendText(value, "sha256", hex.EncodeToString(sum[:]))
	if i.meta != nil {
		value = strictjson.AppendRaw(value, "meta", i.meta)
	}

	value = append(value, '}')

	// A member of that name would be a claim about another import, so it is replaced.
	members = append(without(members, importedFrom), strictjson.Member{Name: importedFrom, Value: value})
	i.document = strictjson.AppendObject(nil, members)

	return nil
}

// without returns a copy of members without one of them.
func without(members []strictjson.Member, name string) []strictjson.Member {
	var rest []strictjson.Member
	for _, m := range members {
		if m.Name != name {
			rest = append(rest, m)
		}
	}

	return rest
}

// readKeys reads the keys that verify signed cards.
func (im *importer) readKeys() error {
	for _, file := range im.keyFiles {
		text, err := im.session.ReadFile(file, directory.MaxDocument)
		if err != nil {
			return err
		}

		im.keys = cmp.Or(im.keys, &card.Keys{})

		if err := im.keys.Add(text); err != nil {
			return cli.Failed(cli.ExitKey, "cannot use the keys in %s: %w", file, err).
				WithHint("--card-key must be a file with public keys: a JWKS, a JWK, or PEM.")
		}
	}

	return nil
}

// verifySignature records whether an agent card has a signature by one of the given keys.
// Without given keys, an unsigned card has no result.
func (im *importer) verifySignature(i *item) {
	if im.kind != directory.KindA2A {
		return
	}

	keys := im.keys
	if keys == nil {
		// Without keys, the verification still tells unsigned cards from signed ones.
		keys = &card.Keys{}
	}

	keyID, err := keys.Verify(i.document)

	unsigned := errors.Is(err, card.ErrUnsigned)
	switch {
	case err == nil:
		i.Signature = "verified with key " + keyID
	case unsigned && im.keys != nil:
		i.Signature = "not verified: " + err.Error()

	// An unsigned card has nothing to verify, and checkItem refuses a malformed one.
	case unsigned || directory.ProblemOf(err) == directory.BadRequest:
	case im.keys == nil:
		i.Signature = "not verified: no --card-key"
	default:
		i.Signature = "not verified: " + err.Error()
	}
}
