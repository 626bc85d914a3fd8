"""The dashboard: what a cluster's share groups do, in a browser, as JSON, and for Prometheus.

Its nouns. `Site` is what one running dashboard has: its options, its `Source` and its `History`. The `Source` reads a
cluster through the admin client, ours or Apache's; the `EmbeddedView` is the broker's own view, where the dashboard
runs inside it. The `Sampler` looks at the cluster every few seconds: it fills the `History` and makes the `Overview`.
`model` holds the shapes that pages, the JSON API and its OpenAPI description share; `queries` makes them from the
source, `actions` changes things. `Guard` stands before all of it: token, same origin, read-only.
"""
