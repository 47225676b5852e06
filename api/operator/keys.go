package operator

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
)

// A Keyring manages the keys that sign for the domain.
type Keyring interface {
	// Keys are the domain's, from its newest key document.
	Keys() wire.KeysStatus
	// RotateKey gives this node another signing key.
	RotateKey(context.Context) error
	// RevokeKey revokes a signing key, for the whole domain and permanently.
	RevokeKey(ctx context.Context, id string) error
}

// Keys answers the routes of signing keys.
type Keys struct {
	Keyring Keyring
	Logger  *slog.Logger
}

// List answers GET /v1/operator/keys.
func (k *Keys) List(w http.ResponseWriter, c *request.Call) error {
	return response.Status(w, c, k.Keyring.Keys())
}

// Rotate answers POST /v1/operator/keys/rotate: this node gets another signing key.
func (k *Keys) Rotate(w http.ResponseWriter, call *request.Call) error {
	if err := k.Keyring.RotateKey(call.Context()); err != nil {
		return err
	}

	k.Logger.Info("signing key rotated", "request_id", call.RequestID, "caller", call.Identity.String())

	return response.NoContent(w)
}

// Revoke answers POST /v1/operator/keys/revoke, for the whole domain and permanently.
func (k *Keys) Revoke(w http.ResponseWriter, call *request.Call) error {
	var in wire.RevokeRequest
	if err := request.ReadObject(w, call, &in); err != nil {
		return err
	}

	if err := k.Keyring.RevokeKey(call.Context(), in.Key); err != nil {
		return err
	}

	k.Logger.Info("signing key revoked", "request_id", call.RequestID, "caller", call.Identity.String(), "key", in.Key)

	return response.NoContent(w)
}
