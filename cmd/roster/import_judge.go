package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/client/contract"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/trust"
)

// importedFrom is the member in which an imported document says where it came
// from. It is no part of what was there.
const importedFrom = directory.ImportedFrom

// trace writes down in a document where it came from.
func (im *importing) trace(i *item) error {
	if im.kind == directory.KindWoA {
		return nil // who crawled it has done so
	}
	members, err := directory.ParseObject(i.document)
	if err != nil {
		return err
	}
	source := i.Source
	b := []byte{'{'}
	if im.origin != "" {
		source = im.origin
	}
	b = strictjson.AppendText(b, "source", source)
	if im.origin != "" {
		b = strictjson.AppendText(b, "item", i.Source)
	}
	sum := sha256.Sum256(i.document)
	b = strictjson.AppendText(b, "sha256", hex.EncodeToString(sum[:]))
	if i.meta != nil {
		b = strictjson.AppendRaw(b, "meta", i.meta)
	}
	members = append(without(members, importedFrom), strictjson.Member{Name: importedFrom, Value: append(b, '}')})
	i.document = strictjson.AppendObject(nil, members)
	return nil
}

// without returns members but for one, in a list of its own.
func without(members []strictjson.Member, name string) (rest []strictjson.Member) {
	for _, m := range members {
		if m.Name != name {
			rest = append(rest, m)
		}
	}
	return rest
}

// readKeys reads the keys by which signed cards are judged.
func (im *importing) readKeys() error {
	for _, file := range im.keyFiles {
		text, err := im.readFile(file, directory.MaxDocument)
		if err != nil {
			return err
		}
		if im.keys == nil {
			im.keys = &trust.CardKeys{}
		}
		if err := im.keys.Add(text); err != nil {
			return failed(exitKey, "the keys in %s can't be used: %w", file, err).because("Give public keys: a JWKS, a JWK, or PEM.")
		}
	}
	return nil
}

// judgeSignature says of an agent card whether it is signed by somebody known.
func (im *importing) judgeSignature(i *item) {
	if im.kind != directory.KindA2A {
		return
	}
	keys := im.keys
	if keys == nil {
		keys = &trust.CardKeys{}
	}
	switch kid, err := keys.VerifyCard(i.document); {
	case err == nil:
		i.Signature = "verified, by the key " + kid
	case errors.Is(err, trust.ErrUnsigned) && im.keys != nil:
		i.Signature = "not verified: " + err.Error()
	case errors.Is(err, trust.ErrUnsigned) || directory.ProblemOf(err) == directory.BadRequest:
	case im.keys == nil:
		i.Signature = "not verified: no --card-key is given"
	default:
		i.Signature = "not verified: " + err.Error()
	}
}

// A difference is how one member of a document that would be registered differs
// from what is.
type difference struct {
	Member string         `json:"member"`
	Was    jsontext.Value `json:"was,omitzero"` // absent where there was none
	Is     jsontext.Value `json:"is,omitzero"`  // absent where there is none now
}

// sign is +, - or ~: added, removed or changed.
func (d difference) sign() string {
	switch {
	case d.Was == nil:
		return "+"
	case d.Is == nil:
		return "-"
	}
	return "~"
}

// compare says of each document what its registration would change. Where the
// directory can't be asked, the documents are valid and no more is told.
func (im *importing) compare(ctx context.Context, items []*item) {
	client, err := im.client()
	if err == nil {
		err = im.each(ctx, items, func(ctx context.Context, i *item) error { return im.compareOne(ctx, client, i) })
	}
	if err != nil {
		im.note("Nothing is compared with what is registered: %s", failureOf(err).what)
	}
	for _, i := range items {
		if i.Result == untried {
			i.Result = valid
		}
	}
}

func (im *importing) compareOne(ctx context.Context, client *apiclient.Client, i *item) error {
	r, err := client.Get(ctx, resource(i.Agent, ""))
	var answered *apiclient.Error
	switch {
	case errors.As(err, &answered) && (answered.Status == http.StatusNotFound || answered.Status == http.StatusMultipleChoices):
		i.Result = isNew
		return nil
	case err != nil:
		return err
	case r.Provenance.Verification.State != "local": // another domain's, which may have the same name
		i.Result = isNew
		return nil
	}
	was, err := contract.Contents(ctx, client, r.Href)
	if err != nil {
		return err
	}
	is, err := directory.ParseDocument(im.kind, i.document)
	if err != nil {
		return err
	}
	i.RID, i.Diff = r.RID(), differences(was.Document, is)
	if i.Result = changed; len(i.Diff) == 0 {
		i.Result = unchanged
	}
	return nil
}

// differences compares two documents member by member, but for where they came
// from. A change of the kind is told as one.
func differences(was, is directory.Document) (ds []difference) {
	if was.Kind() != is.Kind() {
		ds = append(ds, difference{"kind", strictjson.AppendString(nil, string(was.Kind())), strictjson.AppendString(nil, string(is.Kind()))})
	}
	old, now := without(was.Members(), importedFrom), without(is.Members(), importedFrom)
	for _, m := range old {
		if v, _ := strictjson.FindMember(now, m.Name); !bytes.Equal(v, m.Value) {
			ds = append(ds, difference{m.Name, m.Value, v})
		}
	}
	for _, m := range now {
		if _, had := strictjson.FindMember(old, m.Name); !had {
			ds = append(ds, difference{m.Name, nil, m.Value})
		}
	}
	return ds
}

// words says for people what is worth knowing of a document that was taken.
func (im *importing) words(i *item) string {
	var parts []string
	if i.Signature != "" {
		parts = append(parts, "signature "+i.Signature)
	}
	parts = append(parts, i.Warnings...)
	for _, d := range i.Diff {
		parts = append(parts, d.sign()+d.Member)
	}
	return strings.Join(parts, ", ")
}
