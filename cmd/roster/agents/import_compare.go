package agents

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/client/contract"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A difference is a member in which a document differs from the one that is registered.
type difference struct {
	Member string         `json:"member"`
	Was    jsontext.Value `json:"was,omitzero"` // absent if the member was added
	Is     jsontext.Value `json:"is,omitzero"`  // absent if the member was removed
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

// compare finds out the changes that each document's registration would make. If the directory is
// unreachable, the documents are valid and nothing more. It fails only if it is interrupted.
func (im *importer) compare(ctx context.Context, items []*item) error {
	client, err := im.session.Client()
	if err == nil {
		err = im.each(ctx, items, func(ctx context.Context, i *item) error {
			// The directory is asked last, because its refusal replaces the result of the comparison.
			return errors.Join(im.compareItem(ctx, client, i), im.askDirectory(ctx, client, i))
		})
	}

	if ctx.Err() != nil {
		return ctx.Err()
	}

	if err != nil {
		im.session.Note("the directory was not asked about all of them: %s", cli.FailureOf(err).Message)
	}

	added := 0

	for _, i := range items {
		switch i.Result {
		case untried:
			i.Result = valid
		case isNew, changed:
			added++
		}
	}

	if added > 1 {
		im.session.Note("the quotas have room for each of these %d; whether for all together, only the import shows",
			added)
	}

	return nil
}

// noRevision is a condition that no registration fulfils.
const noRevision = `"0"`

// askDirectory asks the directory whether it would accept an item. The condition keeps it from
// doing so: it is judged last, after the identity, policy, the owner of the name and the quotas.
func (im *importer) askDirectory(ctx context.Context, client *apiclient.Client, i *item) error {
	options := im.options
	options.IfMatch = noRevision

	_, err := client.Register(ctx, i.Agent, i.document, options)

	var response *apiclient.Error
	switch {
	case errors.Is(err, apiclient.ErrPrecondition):
		return nil
	case errors.As(err, &response) && isRefusalOfDocument(response.Status):
		i.refuse(err)
		return nil
	}

	return err
}

func (im *importer) compareItem(ctx context.Context, client *apiclient.Client, i *item) error {
	found, err := client.Get(ctx, connect.RegistrationPath(i.Agent, ""))

	var response *apiclient.Error
	switch {
	case errors.As(err, &response) && isNoOwnRegistration(response.Status):
		i.Result = isNew
		return nil
	case err != nil:
		return err

	// Another domain's registration doesn't block the name.
	case found.Provenance.Verification.State != "local":
		i.Result = isNew
		return nil
	}

	was, err := contract.Contents(ctx, client, found.Href)
	if err != nil {
		return err
	}

	is, err := directory.ParseDocument(im.kind, i.document)
	if err != nil {
		return err
	}

	i.RID = found.RID()
	i.Diff = differences(was.Document, is)

	i.Result = changed
	if len(i.Diff) == 0 {
		i.Result = unchanged
	}

	return nil
}

// isNoOwnRegistration reports whether a status says that the domain has no registration of
// a name, though several others may.
func isNoOwnRegistration(status int) bool {
	return status == http.StatusNotFound || status == http.StatusMultipleChoices
}

// differences compares two documents member by member, without importedFrom. A change of
// the kind is a difference of its own.
func differences(was, is directory.Document) []difference {
	var all []difference
	if was.Kind() != is.Kind() {
		all = append(all, difference{
			Member: "kind",
			Was:    strictjson.AppendString(nil, string(was.Kind())),
			Is:     strictjson.AppendString(nil, string(is.Kind())),
		})
	}

	before := without(was.Members(), importedFrom)

	after := without(is.Members(), importedFrom)
	for _, m := range before {
		// An absent member has a nil value, which marks the removal.
		if value, _ := strictjson.FindMember(after, m.Name); !bytes.Equal(value, m.Value) {
			all = append(all, difference{m.Name, m.Value, value})
		}
	}

	for _, m := range after {
		if _, ok := strictjson.FindMember(before, m.Name); !ok {
			all = append(all, difference{m.Name, nil, m.Value})
		}
	}

	return all
}
