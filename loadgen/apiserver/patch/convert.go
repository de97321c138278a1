package patch

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"github.com/google/uuid"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"watchlab/loadgen/apiserver/resources"
)

// Convert returns a stored object in the version of a resource. A custom resource gets the shape of its own version
// first, as a real server's when it is read: fields that the schema has lost are pruned, new defaults are added. The
// error is an API status: without a reason, as a real server's, if a webhook fails. The object is not changed; the
// result may share values with it.
func Convert(res *resources.Resource, o runtime.Object) (runtime.Object, error) {
	u, ok := o.(*unstructured.Unstructured)
	switch {
	case ok && res.Custom != nil:
		out, err := convertCustom(res.Custom, u.DeepCopy(), res.GVK)
		return out, asStatus(err)
	case ok || !res.Typed():
		return o, nil
	}
	out := res.NewObject()
	if reflect.TypeOf(out) == reflect.TypeOf(o) {
		return o, nil
	}
	return out, asStatus(resources.Scheme.Convert(o, out, nil))
}

// convertCustom changes and returns a custom resource.
func convertCustom(c *resources.Custom, u *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	from := u.GroupVersionKind()
	own := c.All[from.Version]
	if own == nil {
		return nil, fmt.Errorf("request to convert CR from an invalid group/version: %s", from.GroupVersion())
	}
	pruning.Prune(u.Object, own.Structural, true)
	addDefaults(u.Object, own.Structural)
	if from.Version == to.Version {
		return u, nil
	}
	if c.Conversion.Strategy == apiextensionsv1.WebhookConverter {
		converted, err := callWebhook(c, u, to.GroupVersion().String())
		if err != nil {
			return nil, fmt.Errorf("conversion webhook for %s %w", from, err)
		}
		u = converted
	}
	u.SetGroupVersionKind(to)
	pruning.Prune(u.Object, c.Structural, true)
	return u, nil
}

// callWebhook converts an object by the webhook of its definition.
func callWebhook(c *resources.Custom, u *unstructured.Unstructured, to string) (*unstructured.Unstructured, error) {
	failed := func(err error) (*unstructured.Unstructured, error) { return nil, fmt.Errorf("failed: %w", err) }
	hook := c.Conversion.Webhook
	id := types.UID(uuid.NewString())
	version := "v1"
	for _, v := range hook.ConversionReviewVersions {
		if v == "v1" || v == "v1beta1" {
			version = v
			break
		}
	}
	review := apiextensionsv1.ConversionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/" + version, Kind: "ConversionReview"},
		Request:  &apiextensionsv1.ConversionRequest{UID: id, DesiredAPIVersion: to, Objects: []runtime.RawExtension{{Object: u}}},
	}
	answer, err := post(hook.ClientConfig, &review)
	switch {
	case err != nil:
		return failed(err)
	case answer.Response == nil:
		return failed(errors.New("no response provided"))
	case version == "v1" && answer.Response.UID != id:
		return failed(fmt.Errorf("expected response.uid=%q, got %q", id, answer.Response.UID))
	case answer.Response.Result.Status != metav1.StatusSuccess && answer.Response.Result.Message != "":
		return failed(errors.New(answer.Response.Result.Message))
	case answer.Response.Result.Status != metav1.StatusSuccess:
		return failed(fmt.Errorf("response.result.status was '%s', not 'Success'", answer.Response.Result.Status))
	case len(answer.Response.ConvertedObjects) != 1:
		return nil, fmt.Errorf("returned %d objects, expected 1", len(answer.Response.ConvertedObjects))
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(answer.Response.ConvertedObjects[0].Raw); err != nil {
		return failed(err)
	}
	if want := schema.FromAPIVersionAndKind(to, u.GetKind()); out.GroupVersionKind() != want {
		return nil, fmt.Errorf("returned invalid object at index 0: invalid groupVersion or kind (expected %v, received %v)", want, out.GroupVersionKind())
	}
	if out.GetName() != u.GetName() || out.GetNamespace() != u.GetNamespace() || out.GetUID() != u.GetUID() {
		return nil, errors.New("returned invalid object: must have the same name, namespace and UID")
	}
	// A webhook may change labels and annotations only.
	labels, annotations := out.GetLabels(), out.GetAnnotations()
	out.Object["metadata"] = runtime.DeepCopyJSONValue(u.Object["metadata"])
	out.SetLabels(labels)
	out.SetAnnotations(annotations)
	return out, nil
}

// webhookTimeout is that of a real server's conversions.
const webhookTimeout = 30 * time.Second

// post sends a review to a webhook. A service has no address in a simulated cluster.
func post(client *apiextensionsv1.WebhookClientConfig, review *apiextensionsv1.ConversionReview) (*apiextensionsv1.ConversionReview, error) {
	if s := client.Service; s != nil {
		path := ""
		if s.Path != nil {
			path = *s.Path
		}
		at := fmt.Sprintf("https://%s.%s.svc:%d%s?timeout=%v", s.Name, s.Namespace, *s.Port, path, webhookTimeout)
		return nil, &url.Error{Op: "Post", URL: at, Err: fmt.Errorf("service %q not found", s.Name)}
	}
	body, err := json.Marshal(review)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if len(bytes.TrimSpace(client.CABundle)) > 0 {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(client.CABundle)
	}
	res, err := (&http.Client{Transport: transport, Timeout: webhookTimeout}).Post(fmt.Sprintf("%s?timeout=%v", *client.URL, webhookTimeout), "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, mostBytes*2))
	if err != nil {
		return nil, err
	}
	if res.StatusCode < http.StatusOK || res.StatusCode > http.StatusPartialContent {
		return nil, errors.New("the server responded with the status code " + fmt.Sprint(res.StatusCode) + " but did not return more information")
	}
	answer := &apiextensionsv1.ConversionReview{}
	return answer, json.Unmarshal(text, answer)
}
