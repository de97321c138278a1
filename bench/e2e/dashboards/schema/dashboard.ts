// What a dashboard's JSON must be, by the types that Grafana publishes itself
// (@grafana/schema): Oldest by those of 9.3, Recent by those of a later release,
// which have the options of each panel, too. What differs is said where it does.
import type * as oldest from 'grafana-oldest';
import type * as recent from '@grafana/schema';
import type * as heatmap from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as stateTimeline from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as timeSeries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// Plain is what JSON holds of a type: the values of its enums.
type Plain<T> = T extends string
  ? `${T}`
  : T extends number | boolean | null | undefined
    ? T
    : T extends Array<infer E>
      ? Plain<E>[]
      : T extends object
        ? { [K in keyof T]: Plain<T[K]> }
        : T;

type Source = { type: 'prometheus'; uid: '${datasource}' };

// A query of the Prometheus data source. 9.3 publishes no type of it; this is its
// PromQuery (public/app/plugins/datasource/prometheus/types.ts).
type Query = {
  refId: string;
  datasource: Source;
  expr: string;
  format: 'time_series' | 'table' | 'heatmap';
  instant: boolean;
  range: boolean;
  exemplar: boolean;
  legendFormat: string;
  editorMode: 'code' | 'builder';
};

// A panel's link. The types of 9.3 take it for a dashboard's.
type PanelLink = { title: string; url: string; targetBlank: boolean };

// The lowest threshold has no value: JSON has no -Infinity.
type Threshold = { color: string; value: number | null };

type Field<Base, Custom> = Omit<Plain<Base>, 'custom' | 'thresholds'> & {
  custom?: Plain<Custom>;
  thresholds?: { mode: 'absolute' | 'percentage'; steps: Threshold[] };
};

type Drawn<Base, Config, Type extends string, Options, Custom> = Omit<Plain<Base>, 'type' | 'datasource' | 'targets' | 'links' | 'options' | 'fieldConfig'> & {
  type: Type;
  datasource: Source;
  targets: Query[];
  links?: PanelLink[];
  options: Plain<Options>;
  fieldConfig: { defaults: Field<Config, Custom>; overrides: { matcher: { id: string; options?: string }; properties: { id: string; value?: unknown }[] }[] };
};

// An annotation of the Prometheus data source keeps its query beside what all have.
type Annotation<Base> = Plain<Base> & {
  expr?: string;
  step?: string;
  titleFormat?: string;
  textFormat?: string;
  tagKeys?: string;
  useValueForTime?: boolean;
  showIn?: number; // of 9.3; unknown to recent releases
};

// Variables were not typed any closer than this in 9.3.
type Variable = {
  type: 'query' | 'datasource';
  name: string;
  label: string;
  description?: string;
  datasource?: Source;
  definition?: string;
  query: string | { query: string; refId: string };
  regex: string;
  refresh: 0 | 1 | 2;
  sort?: 0 | 1 | 2 | 3 | 4;
  hide: 0 | 1 | 2;
  multi: boolean;
  includeAll: boolean;
  allValue?: string;
  skipUrlSync: boolean;
  current: object;
  options: never[];
};

type Page<Base, Annotations, Panels> = Omit<Plain<Base>, 'annotations' | 'panels' | 'templating'> & {
  annotations: { list: Annotation<Annotations>[] };
  panels: Panels[];
  templating: { list: Variable[] };
};

// 9.3 publishes the options that panels have in common, and no others.
type Legend = oldest.OptionsWithLegend & oldest.OptionsWithTooltip;
type Reduced = oldest.SingleStatBaseOptions;
type OldPanel<Type extends string, Options, Custom = {}> = Drawn<oldest.Panel, oldest.FieldConfig, Type, Options, Custom>;

export type Oldest = Page<
  oldest.Dashboard,
  oldest.AnnotationQuery,
  | Plain<oldest.RowPanel>
  | OldPanel<'timeseries', Legend, oldest.GraphFieldConfig>
  | OldPanel<'stat', Reduced & { colorMode: oldest.BigValueColorMode; graphMode: oldest.BigValueGraphMode; justifyMode: oldest.BigValueJustifyMode; textMode: oldest.BigValueTextMode }>
  | OldPanel<'state-timeline', Legend & { alignValue: 'center' | 'left' | 'right'; mergeValues: boolean; rowHeight: number; showValue: oldest.VisibilityMode }, oldest.HideableFieldConfig & { fillOpacity: number; lineWidth: number }>
  | OldPanel<'table', { showHeader: boolean; sortBy?: { displayName: string; desc?: boolean }[]; footer: { show: boolean; reducer: string[]; fields: string } }, oldest.TableFieldOptions>
  // By public/app/plugins/panel/heatmap/models.gen.ts.
  | OldPanel<'heatmap', Omit<heatmap.Options, 'tooltip' | 'annotations' | 'selectionMode'> & { tooltip: { show: boolean; yHistogram: boolean } }, heatmap.FieldConfig>
>;

// A recent Grafana fills in what is missing from its defaults, and migrates what an
// older one had: the tooltip of a heat map, a table's footer and kind of cell.
type NewPanel<Type extends string, Options, Custom = {}> = Drawn<recent.Panel, recent.FieldConfig, Type, Options, Custom>;

export type Recent = Page<
  Omit<recent.Dashboard, 'time' | 'timepicker'> & Pick<oldest.Dashboard, 'style' | 'time' | 'timepicker'>,
  recent.AnnotationQuery,
  | Plain<recent.RowPanel>
  | NewPanel<'timeseries', timeSeries.Options, timeSeries.FieldConfig>
  | NewPanel<'stat', Partial<stat.Options>>
  | NewPanel<'state-timeline', stateTimeline.Options, stateTimeline.FieldConfig>
  | NewPanel<'table', Partial<table.Options> & { footer: object }, Partial<table.FieldConfig> & { displayMode: string }>
  | NewPanel<'heatmap', Omit<heatmap.Options, 'tooltip'> & { tooltip: Partial<heatmap.HeatmapTooltip> & { show: boolean } }, heatmap.FieldConfig>
>;
