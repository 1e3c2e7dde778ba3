// The one place from which modules take the view library: components with hooks, signals, and `html` templates.
import { Fragment, createContext, h, render } from "preact";
import {
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "preact/hooks";
import { batch, computed, effect, signal, useComputed, useSignal, useSignalEffect } from "@preact/signals";
import htm from "htm";

export const html = htm.bind(h);
export {
  Fragment,
  batch,
  computed,
  createContext,
  effect,
  h,
  render,
  signal,
  useCallback,
  useComputed,
  useContext,
  useEffect,
  useErrorBoundary,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useSignal,
  useSignalEffect,
  useState,
};
