// Types that no file of the page declares: the modules of the import map, as far as ui.js uses them, and the answers of
// the HTTP API. Only `make check-web` reads this.

declare module "preact" {
  /** Whatever a component may return and an `html` template may contain. */
  export type Child = object | string | number | bigint | boolean | null | undefined;
  export interface VNode {
    type: any;
    props: any;
    key: any;
  }
  export interface Context<T> {
    Provider: (properties: { value: T; children?: any }) => any;
  }
  export function h(type: any, properties?: Record<string, any> | null, ...children: any[]): VNode;
  export function render(node: any, into: Element): void;
  export function createContext<T>(initial: T): Context<T>;
  export const Fragment: (properties: { children?: any }) => any;
}

declare module "preact/hooks" {
  import type { Context } from "preact";
  type Inputs = readonly unknown[];
  type Effect = () => void | (() => void);
  export type Update<S> = (value: S | ((before: S) => S)) => void;
  export interface Ref<T> {
    current: T;
  }
  export function useState<S>(initial: S | (() => S)): [S, Update<S>];
  export function useRef<T>(initial: T): Ref<T>;
  export function useEffect(effect: Effect, inputs?: Inputs): void;
  export function useLayoutEffect(effect: Effect, inputs?: Inputs): void;
  export function useMemo<T>(make: () => T, inputs: Inputs): T;
  export function useCallback<F extends Function>(callback: F, inputs: Inputs): F;
  export function useContext<T>(context: Context<T>): T;
  export function useErrorBoundary(caught?: (error: any) => void): [any, () => void];
  export function useId(): string;
}

declare module "@preact/signals" {
  export interface ReadonlySignal<T> {
    readonly value: T;
    peek(): T;
    subscribe(listener: (value: T) => void): () => void;
  }
  export interface Signal<T> extends ReadonlySignal<T> {
    value: T;
  }
  export function signal<T>(initial: T): Signal<T>;
  export function computed<T>(compute: () => T): ReadonlySignal<T>;
  export function effect(act: () => void | (() => void)): () => void;
  export function batch<T>(act: () => T): T;
  export function useSignal<T>(initial: T): Signal<T>;
  export function useComputed<T>(compute: () => T): ReadonlySignal<T>;
  export function useSignalEffect(act: () => void | (() => void)): void;
}

declare module "htm" {
  /** The tag of templates. Properties of components in a template are not checked: they are text for TypeScript. */
  const htm: { bind(make: Function): (strings: TemplateStringsArray, ...values: any[]) => any };
  export default htm;
}

declare namespace Api {
  /** Routes of a method, with their answer under their path. */
  type Answers<Method, One = Route> = One extends [Method, infer Path, infer Answer, any] ? [Path, Answer] : never;
  type Same<Path, One> = One extends [infer Known, infer Answer] ? ([Path] extends [Known] ? ([Known] extends [Path] ? Answer : never) : never) : never;
  type Within<Path, One> = One extends [infer Known, infer Answer] ? ([Known] extends [Path] ? Answer : never) : never;
  /**
   * The answer of a call: of the route with this path, else of every route that the path may mean (`/v1/_${kind}def`).
   * `never` if there is none, so that whoever reads a field of it is told. A path that is any text may mean anything.
   */
  type Reply<Method, Path> = string extends Path
    ? any
    : [Same<Path, Answers<Method>>] extends [never]
      ? Within<Path, Answers<Method>>
      : Same<Path, Answers<Method>>;
}
