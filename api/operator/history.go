package operator

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// An Eraser erases the contents of registrations that have ended. Its errors are *directory.Error.
type Eraser interface {
	// EraseHistory takes the contents of a registration out of the history, on all members.
	EraseHistory(ctx context.Context, rid directory.RID) error
}

// History answers the route of the history of registrations.
type History struct {
	Eraser Eraser
	Logger *slog.Logger
}

// Erase answers POST /v1/operator/history/erase, for the whole domain and permanently.
func (h *History) Erase(w http.ResponseWriter, call *request.Call) error {
	var in wire.EraseRequest
	if err := request.ReadObject(w, call, &in); err != nil {
		return err
	}

	rid, err := directory.ParseRID(in.RID)
	if err != nil {
		return directory.Refuse(directory.BadRequest,
			"rid must be the id of a registration, got %.60q", in.RID).At("/rid")
	}

	if err := h.Eraser.EraseHistory(call.Context(), rid); err != nil {
		return err
	}

	h.Logger.Info("contents of a registration erased", "request_id", call.RequestID,
		"caller", call.Identity.String(), "rid", in.RID)

	return response.NoContent(w)
}
