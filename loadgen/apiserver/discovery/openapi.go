package discovery

import "net/http"

type openAPI struct{}

func newOpenAPI(d *documents) openAPI { return openAPI{} }

func (d *documents) serveOpenAPI(w http.ResponseWriter, req *http.Request, parts []string) {
	http.NotFound(w, req)
}
