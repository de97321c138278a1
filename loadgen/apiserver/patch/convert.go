package patch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

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
	hook := c.Conversion.Webhook
	id := types.UID(uuid.NewString())
	version := hook.ConversionReviewVersions[slices.IndexFunc(hook.ConversionReviewVersions, resources.IsReviewVersion)]
	var review apiextensionsv1.ConversionReview // v1beta1 has the same fields
	review.APIVersion, review.Kind = apiextensionsv1.GroupName+"/"+version, "ConversionReview"
	review.Request = &apiextensionsv1.ConversionRequest{UID: id, DesiredAPIVersion: to, Objects: []runtime.RawExtension{{Object: u}}}
	body, err := json.Marshal(&review)
	if err == nil {
		body, err = post(hook.ClientConfig, body)
	}
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	answer := review.Response
	switch {
	case err != nil:
	case answer == nil:
		err = errors.New("no response provided")
	case version == "v1" && answer.UID != id:
		err = fmt.Errorf("expected response.uid=%q, got %q", id, answer.UID)
	case answer.Result.Status != metav1.StatusSuccess:
		err = errors.New(cmp.Or(answer.Result.Message, fmt.Sprintf("response.result.status was '%s', not 'Success'", answer.Result.Status)))
	case len(answer.ConvertedObjects) != 1:
		return nil, fmt.Errorf("returned %d objects, expected 1", len(answer.ConvertedObjects))
	}
	out := &unstructured.Unstructured{}
	if err == nil {
		err = out.UnmarshalJSON(answer.ConvertedObjects[0].Raw)
	}
	if err != nil {
		return nil, fmt.Errorf("failed: %w", err)
	}
	if want := schema.FromAPIVersionAndKind(to, u.GetKind()); out.GroupVersionKind() != want || out.GetName() != u.GetName() || out.GetNamespace() != u.GetNamespace() || out.GetUID() != u.GetUID() {
		return nil, fmt.Errorf("returned invalid object: it must have the kind %v and the same name, namespace and UID", want)
	}
	// A webhook may change labels and annotations only.
	labels, annotations := out.GetLabels(), out.GetAnnotations()
	out.Object["metadata"] = runtime.DeepCopyJSONValue(u.Object["metadata"])
	out.SetLabels(labels)
	out.SetAnnotations(annotations)
	return out, nil
}

// post sends a review to a webhook. A service has no address in a simulated cluster.
func post(client *apiextensionsv1.WebhookClientConfig, body []byte) ([]byte, error) {
	config := &rest.Config{ContentConfig: rest.ContentConfig{GroupVersion: &apiextensionsv1.SchemeGroupVersion, NegotiatedSerializer: resources.Codecs}}
	config.CAData = bytes.TrimSpace(client.CABundle)
	at := ptr.Deref(client.URL, "")
	if s := client.Service; s != nil {
		at = fmt.Sprintf("https://%s.%s.svc:%d%s", s.Name, s.Namespace, *s.Port, ptr.Deref(s.Path, ""))
		config.Dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, fmt.Errorf("service %q not found", s.Name)
		}
	}
	u, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	config.Host = u.Scheme + "://" + u.Host
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	const timeout = 30 * time.Second // of a real server
	return c.Post().AbsPath(u.Path).Timeout(timeout).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).DoRaw(context.Background())
}
